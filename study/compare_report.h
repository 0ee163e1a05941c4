#ifndef STRATA_STUDY_COMPARE_REPORT_H_
#define STRATA_STUDY_COMPARE_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "study/compare.h"

namespace strata {

// The numbers of one arm, as `strata compare --json` prints them; what is unknown is null.
nlohmann::ordered_json ToJson(const ComparedArm& arm);

// The same for readers: rows of cells, the header first.
std::vector<std::vector<std::string>> TableOf(const Comparison& comparison);
// Cells in columns, the first to the left and the others to the right.
std::string AlignTable(const std::vector<std::vector<std::string>>& rows);

// The result in a sentence: which connection is best and by how much, or that the runs do not tell.
std::string AnswerOf(const Comparison& comparison);
// What a reader of the table must know.
std::vector<std::string> NotesOf(const Comparison& comparison);

// The whole report, one HTML file. command: how it was made.
std::string ReportOf(const Comparison& comparison, const std::string& command);

}  // namespace strata

#endif  // STRATA_STUDY_COMPARE_REPORT_H_
