# Test groups: ops, papers, conformance, learning, model, study and tools. `ctest -L GROUP` runs one.
find_package(GTest REQUIRED)
include(GoogleTest)

function(strata_tests group)
  add_executable(${group}_tests ${ARGN})
  target_link_libraries(${group}_tests PRIVATE ${previous} GTest::gtest_main GTest::gmock)
  target_compile_definitions(${group}_tests PRIVATE
    STRATA_EXECUTABLE="$<TARGET_FILE:strata>" STRATA_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  gtest_discover_tests(${group}_tests TEST_PREFIX "${group}." PROPERTIES LABELS ${group}
    DISCOVERY_TIMEOUT 60)
endfunction()

file(GLOB base_tests CONFIGURE_DEPENDS base/*_test.cc)
file(GLOB ops_tests CONFIGURE_DEPENDS ops/*_test.cc)
file(GLOB papers_tests CONFIGURE_DEPENDS residual/papers_*_test.cc)
file(GLOB conformance_tests CONFIGURE_DEPENDS residual/conformance*_test.cc residual/*_test.cc)
list(REMOVE_DUPLICATES conformance_tests)
list(REMOVE_ITEM conformance_tests ${papers_tests})
file(GLOB learning_tests CONFIGURE_DEPENDS model/learning_test.cc)
file(GLOB model_tests CONFIGURE_DEPENDS model/*_test.cc infer/*_test.cc)
list(REMOVE_ITEM model_tests ${learning_tests})
file(GLOB study_tests CONFIGURE_DEPENDS study/*_test.cc report/*_test.cc)
file(GLOB tools_tests CONFIGURE_DEPENDS tools/*_test.cc)
foreach(group base ops papers conformance learning model study tools)
  if(${group}_tests)
    strata_tests(${group} ${${group}_tests})
  endif()
endforeach()

# The report as a browser shows it; skipped where there is none.
find_program(NODE node)
if(NODE)
  add_test(NAME tools.report_in_browser
    COMMAND ${NODE} ${CMAKE_SOURCE_DIR}/report/browser_test.mjs $<TARGET_FILE:strata>)
  set_tests_properties(tools.report_in_browser PROPERTIES LABELS tools SKIP_RETURN_CODE 77 TIMEOUT 240)
endif()
