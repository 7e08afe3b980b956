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
# optpipe_exhibit(<method> <problem> <its header> <title> <when to take it>)
function(optpipe_exhibit method problem header title when)
    string(REGEX REPLACE "[:=,]" "-" file ${method})
    set(plan ${optpipe_source}/build/gallery/${file}.json)
    optpipe_run(${program} plan ${gallery}/${problem}.json --method ${method} --out ${plan} --quiet)
    optpipe_run(${program} draw ${gallery}/${problem}.json ${plan} --svg ${gallery}/${file}.svg)

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
                           "Bubble rate ${bubble_rate}; the ranks hold at most ${peaks} stashes. ${when} [Definition]("
                           "../../include/optpipe/schedule/builders/${header}.hpp).\n\n![${title}](${file}.svg)\n")
    set(table "${table}" PARENT_SCOPE)
    set(pictures "${pictures}" PARENT_SCOPE)
endfunction()

file(MAKE_DIRECTORY ${optpipe_source}/build/gallery)
optpipe_exhibit(gpipe linear gpipe "GPipe"
                "This is the simplest method. It needs memory for the stashes of all microbatches.")
optpipe_exhibit(1f1b linear one_forward_one_backward "1F1B"
                "Take it where backwards can't be split. The first rank holds one stash per rank, for any number of microbatches.")
optpipe_exhibit(zb-h1 linear zero_bubble_h1 "Zero Bubble H1"
                "Take it in place of 1F1B wherever backwards can be split: ranks idle less, and the first rank needs no more memory.")
optpipe_exhibit(zb-h2 linear zero_bubble_h2 "Zero Bubble H2"
                "Take it if nearly twice the stashes of 1F1B fit and the optimizer's step needs no barrier, so that the span counts.")
optpipe_exhibit(zb-auto linear zero_bubble_auto "Zero Bubble, automatic"
                "Take it for measured costs, also unequal ones, and any limit: it fills the gap between H1 and H2, and goes beyond them.")
optpipe_exhibit(interleaved loop interleaved "interleaved 1F1B"
                "More stages per rank mean less idle time. Take it where backwards can't be split and messages are cheap.")
optpipe_exhibit(gis loop gis "generalized interleaved"
                "Take it in place of interleaved 1F1B where backwards can be split: it needs less memory.")
optpipe_exhibit(gis-h loop gis_half "generalized interleaved, half groups"
                "Take it if there is too little memory for `gis`: it has the smallest groups that still keep the ranks busy.")
optpipe_exhibit(gis:g=1 loop gis "generalized interleaved, groups of one"
                "These are the smallest groups. They show what small groups cost in time.")
optpipe_exhibit(po-h loop pipe_offload_half "PipeOffload, half of the stages"
                "Take it where stashes may be offloaded. Half of the stages offload their stashes, if the copies fit between forward and backward.")
optpipe_exhibit(po-f loop pipe_offload_full "PipeOffload, all stages"
                "Take it if there is too little memory for `po-h`, and a copy is much shorter than a forward.")
optpipe_exhibit(zb-v v zero_bubble_v "ZB-V"
                "It is the first choice where the placement may be a V: it needs the memory of 1F1B, and idles little if costs are equal.")
optpipe_exhibit(v-half v v_half "V-Half"
                "On many ranks, it holds about half as many stashes as ZB-V, and idles somewhat more.")
optpipe_exhibit(v-min v v_min "V-Min"
                "It needs the least memory of the methods with a fixed pattern and without offloading. It idles more than `v-half`.")
optpipe_exhibit(v-auto v v_auto "V, the best building block"
                "It searches for the best block of this family for the costs and the limit, so planning takes longer.")
optpipe_exhibit(dualpipe-v v dual_pipe_v "DualPipeV"
                "It is made for frameworks that run a forward and a backward at once. Here nothing overlaps, so it only serves for comparison.")

# As the papers have it, in the words of this library.
set(published [=[
The papers give these values for equal stages without communication. There are R ranks, M microbatches, and v stages on each
rank; T_F, T_I and T_W are the times of all stages of a rank. A stash is all that a rank keeps for one microbatch. The
bubble is the time for which the busiest rank is engaged, minus its work.

| method | bubble | stashes of the first rank | source |
| --- | --- | --- | --- |
| `gpipe` | (R − 1)(T_F + T_I + T_W) | M | Huang et al. 2019 |
| `1f1b` | (R − 1)(T_F + T_I + T_W) | R | Narayanan et al. 2021 |
| `zb-h1` | (R − 1)(T_F + T_I − T_W) | R | Zero Bubble, section 3 |
| `zb-h2` | (R − 1)(T_F + T_I − 2 T_W) | 2R − 1 | the same |
| `zb-auto` | none from about 2R stashes on | as many as the limit allows | the same, section 4 |
| `interleaved` | (R − 1)(T_F + T_I + T_W)/v | R + (R − 1)/v | Narayanan et al. 2021 |
| `gis` | (R − 1)(T_F + T_I)/v | R | PipeOffload, section 4 |
| `gis-h` | that of `gis` plus (v − 1)R/(2v) · (T_F + T_I − T_W) | (v + 1)R/(2v) | the same |
| `po-h` | below (R − 1)(T_F + T_I + T_W) | about (v + 2)R/(8v) | the same |
| `po-f` | as for `po-h` | those of a few stages, for any R | the same |
| `zb-v` | none where T_F = T_I = T_W | R | Zero Bubble, section 6 |
| `v-half` | about R/2 · (T_F + T_I + T_W) | ⌊(R + 2)/2⌋ | Controllable Memory |
| `v-min` | about 2R/3 · (T_F + T_I + T_W) where T_F = T_I = T_W | ⌊(R + 4)/3⌋ | the same |
| `v-auto` | at least (6R − 3k − 1)/2 · T_F where T_F = T_I = T_W and k stages' stashes bind | k/2, as the limit allows | the same |
| `dualpipe-v` | published for a forward and a backward at once; here nothing overlaps | R + 1/2 | DeepSeek-AI 2025 |
]=])
file(
    WRITE ${gallery}/README.md
    "# The published schedules\n\n"
    "For those who want to see what a schedule looks like before they choose one. [The\n"
    "methods](../../include/optpipe/schedule/builders/README.md) have parameters and limits.\n\n"
    "All schedules are for one model on four ranks, with eight microbatches. For each microbatch, a rank runs a forward,\n"
    "an input gradient and a weight gradient of 2 time units each, and holds one stash. A message from rank to rank takes\n"
    "0.1, and a copy of a stash one way takes 0.75 of a pass. Each rank has one stage ([linear](linear.json)), or two of\n"
    "half the size ([loop](loop.json), [v](v.json)). There is no memory limit, and the objective is the longest time that\n"
    "a rank is engaged. `cmake -P cmake/gallery.cmake` draws the schedules.\n\n"
    "| method | placement | span | bubble rate | peak memory of the ranks (stashes) |\n"
    "| --- | --- | --- | --- | --- |\n"
    "${table}\n${published}${pictures}"
)
message(NOTICE "${table}")
