# Draws every published schedule for one model on four ranks, and writes examples/gallery/README.md with what each
# reaches: cmake -P cmake/gallery.cmake
include(${CMAKE_CURRENT_LIST_DIR}/bootstrap.cmake)

set(gallery ${optpipe_source}/examples/gallery)
set(program ${optpipe_source}/build/release/bin/optpipe)
if(NOT EXISTS ${program})
    message(FATAL_ERROR "The program isn't built yet: cmake -P cmake/demo.cmake")
endif()

set(table "")
set(pictures "")
function(optpipe_exhibit method problem title)
    string(REGEX REPLACE "[:=,]" "-" file ${method})
    set(plan ${optpipe_source}/build/gallery/${file}.json)
    optpipe_run(${program} plan ${gallery}/${problem}.json --method ${method} --out ${plan} --quiet)
    optpipe_run(${program} draw ${plan} --problem ${gallery}/${problem}.json --svg ${gallery}/${file}.svg)

    file(READ ${plan} schedule)
    string(JSON objective GET ${schedule} objective)
    string(JSON bubble_rate GET ${schedule} bubble_rate)
    optpipe_rounded(objective ${objective} 2)
    if(bubble_rate MATCHES "e-")
        set(bubble_rate 0.0)
    endif()
    optpipe_rounded(bubble_rate ${bubble_rate} 3)
    string(JSON ranks LENGTH ${schedule} peak_memory)
    math(EXPR last "${ranks} - 1")
    set(peaks "")
    foreach(rank RANGE ${last})
        string(JSON peak GET ${schedule} peak_memory ${rank})
        optpipe_rounded(peak ${peak} 2)
        list(APPEND peaks ${peak})
    endforeach()
    list(JOIN peaks ", " peaks)

    string(APPEND table "| [`${method}`](#${file}) | ${problem} | ${objective} | ${bubble_rate} | ${peaks} |\n")
    string(APPEND pictures "\n<a id=\"${file}\"></a>\n\n### `${method}`: ${title}\n\n"
                           "Bubble rate ${bubble_rate}; the ranks hold at most ${peaks} stashes.\n\n![${title}](${file}.svg)\n")
    set(table "${table}" PARENT_SCOPE)
    set(pictures "${pictures}" PARENT_SCOPE)
endfunction()

file(MAKE_DIRECTORY ${optpipe_source}/build/gallery)
optpipe_exhibit(gpipe linear "GPipe")
optpipe_exhibit(1f1b linear "1F1B")
optpipe_exhibit(zb-h1 linear "Zero Bubble H1")
optpipe_exhibit(zb-h2 linear "Zero Bubble H2")
optpipe_exhibit(zb-auto linear "Zero Bubble, automatic")
optpipe_exhibit(interleaved loop "interleaved 1F1B")
optpipe_exhibit(gis loop "generalized interleaved")
optpipe_exhibit(gis-h loop "generalized interleaved, half groups")
optpipe_exhibit(gis:g=1 loop "generalized interleaved, groups of one")
optpipe_exhibit(po-h loop "PipeOffload, half of the stages")
optpipe_exhibit(po-f loop "PipeOffload, all stages")
optpipe_exhibit(zb-v v "ZB-V")
optpipe_exhibit(v-half v "V-Half")
optpipe_exhibit(v-min v "V-Min")
optpipe_exhibit(v-auto v "V, the best building block")
optpipe_exhibit(dualpipe-v v "DualPipeV")

file(
    WRITE ${gallery}/README.md
    "# The published schedules\n\n"
    "One model on four ranks, eight microbatches: per rank and microbatch a forward, an input gradient and a weight\n"
    "gradient of 2 time units each, one stash, 0.1 from rank to rank, 0.75 of a pass to copy a stash one way. With one\n"
    "stage per rank ([linear](linear.json)), or two of half the size ([loop](loop.json), [v](v.json)). No memory limit;\n"
    "the objective is the longest time that a rank is engaged. Drawn by `cmake -P cmake/gallery.cmake`.\n\n"
    "| method | placement | span | bubble rate | peak memory of the ranks (stashes) |\n"
    "| --- | --- | --- | --- | --- |\n"
    "${table}${pictures}"
)
message(NOTICE "${table}")
