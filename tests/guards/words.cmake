# cmake -P words.cmake -- <folder or file>...
# Finds words that the field doesn't use in what people read: code, comments, messages and documents. Each line of `words`
# has a regular expression and what to say instead.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/arguments.cmake)

set(words
    "put_in_doubt=mark_dirty"
    "convicted=confirmed late"
    "take_back=rollback"
    "bring_away=insert_offload"
    "search_board=search_state"
    "double whole[^a-z_]|[a-z]_whole\\(=integral, or rounded"
    "suited_to=applicable_to"
    "rising_order=least_bound_queue"
    "order_columns=disjunctive_structure"
    "in_vain=stalled"
    "hear_prover=merge_prover_results"
    "call_who_waits=notify_waiters"
    "long_run=steady_state"
    "[^a-z]lesson=learned clause"
    "spending=knapsack constraint"
    "lie to each other=are ordered"
    "stands twice=appears twice"
    "another door=another view"
    "[Tt]he begin[^a-z]=the start"
    "[^a-z][Ww]ho (waits|proves|asks|is|has|wants|gets|knows|adds)[^a-z]=which, or the thread that"
)

set(found "")
foreach(root IN LISTS arguments)
    if(IS_DIRECTORY ${root})
        file(GLOB_RECURSE files ${root}/*.hpp ${root}/*.cpp ${root}/*.md ${root}/*.cmake ${root}/*.py)
    else()
        set(files ${root})
    endif()
    foreach(file IN LISTS files)
        if(file MATCHES "guards/words\\.cmake$|bench/results/")
            continue()
        endif()
        file(READ ${file} text)
        foreach(word IN LISTS words)
            string(REGEX MATCH "^(.*)=([^=]*)$" whole "${word}")
            set(pattern "${CMAKE_MATCH_1}")
            set(instead "${CMAKE_MATCH_2}")
            if(text MATCHES "${pattern}")
                string(APPEND found "${file}: \"${CMAKE_MATCH_0}\", say ${instead}\n")
            endif()
        endforeach()
    endforeach()
endforeach()
if(found)
    message(FATAL_ERROR "not the field's words:\n${found}")
endif()
