# cmake -P cmake/demo.cmake: builds the program, plans one training step, runs it on threads, and draws both. Runs from
# any directory.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/bootstrap.cmake)

# Stashes of this one may be kept, offloaded or recomputed, each microbatch's in its own way.
set(name store-llama2-7b-4k-p4)
optpipe_configure(release)
optpipe_build(release optpipe_cli)
file(MAKE_DIRECTORY ${optpipe_source}/build/demo)
message(NOTICE "")
optpipe_run(
    build/release/bin/optpipe plan tests/data/storage/${name}.json
    --out build/demo/${name}.schedule.json
    --svg build/demo/${name}.svg
    --trace build/demo/${name}.trace.json
)
message(NOTICE "
The same step on threads, with operations that take as long as planned, in half a second:
")
optpipe_run(
    build/release/bin/optpipe run tests/data/storage/${name}.json build/demo/${name}.schedule.json
    --out build/demo/${name}.measured.json
    --svg build/demo/${name}.measured.svg
)
message(NOTICE "
The picture:   ${optpipe_source}/build/demo/${name}.svg (open it in a browser)
The trace:     ${optpipe_source}/build/demo/${name}.trace.json (open it in https://ui.perfetto.dev)
The schedule:  ${optpipe_source}/build/demo/${name}.schedule.json
As it ran:     ${optpipe_source}/build/demo/${name}.measured.svg (the plan in the narrow rows)")
