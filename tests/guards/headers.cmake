# cmake -DSETTINGS=... -DGENERATOR=... -DWORK_DIR=... -DJOBS=... -P headers.cmake
# Every header can be included twice. As the settings say, each compiles ALONE, and all TOGETHER define nothing that two
# objects may not both define.
# Nothing is compiled again that hasn't changed; what includes what is looked at each time.
cmake_minimum_required(VERSION 3.25)

execute_process(
    COMMAND ${CMAKE_COMMAND} -C ${SETTINGS} -S ${CMAKE_CURRENT_LIST_DIR}/headers -B ${WORK_DIR} -G ${GENERATOR}
    COMMAND_ERROR_IS_FATAL ANY
)
set(keep_going "")
if(GENERATOR MATCHES "Ninja")
    set(keep_going 0)
endif()
execute_process(
    COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR} -j ${JOBS} -- -k ${keep_going}
    COMMAND_ERROR_IS_FATAL ANY
)
