# How each folder registers its tests.

# tr_unit_test(NAME SOURCES file... LIBS target...): a check program, label "unit".
function(tr_unit_test name)
    cmake_parse_arguments(T "" "" "SOURCES;LIBS" ${ARGN})
    add_executable(${name} ${T_SOURCES})
    target_link_libraries(${name} PRIVATE build_flags ${T_LIBS} PkgConfig::CHECK)
    add_test(NAME unit/${name} COMMAND ${name})
    set_tests_properties(unit/${name} PROPERTIES LABELS unit TIMEOUT 120 SKIP_RETURN_CODE 77)
endfunction()

# tr_fuzz_target(NAME SOURCES file... LIBS target... CORPUS dir): with TRANSOM_FUZZ a libFuzzer
# program that runs for TRANSOM_FUZZ_SECONDS (environment, default 15); otherwise a program that
# replays the corpus.
function(tr_fuzz_target name)
    cmake_parse_arguments(T "" "CORPUS" "SOURCES;LIBS" ${ARGN})
    if(TRANSOM_FUZZ)
        add_executable(${name} ${T_SOURCES})
        target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        add_test(NAME fuzz/${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/fuzz/run $<TARGET_FILE:${name}>
            ${T_CORPUS})
    else()
        add_executable(${name} ${T_SOURCES} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay.c)
        add_test(NAME fuzz/${name} COMMAND ${name} ${T_CORPUS})
    endif()
    target_link_libraries(${name} PRIVATE build_flags ${T_LIBS})
    set_tests_properties(fuzz/${name} PROPERTIES LABELS fuzz TIMEOUT 1200)
endfunction()
