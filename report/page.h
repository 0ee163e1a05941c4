#ifndef STRATA_REPORT_PAGE_H_
#define STRATA_REPORT_PAGE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/records.h"

namespace strata {

// One residual connection of a comparison.
struct PageArm {
  std::string residual;
  std::vector<std::string> cells;  // its row of the table
  std::vector<Records> runs;       // one a seed
  std::string sample;              // text that the first seed's model wrote; may be empty
};

// What the page of a comparison says. All texts are plain; the page escapes them.
struct Page {
  std::string title;
  std::string answer;              // the result in a sentence or two
  std::vector<std::string> notes;  // what the reader must know to read the table
  std::vector<std::string> header;
  std::vector<PageArm> arms;
  std::string prompt;   // that the samples go on from
  std::string command;  // that makes this page
  nlohmann::ordered_json options = nlohmann::ordered_json::object();
};

// The numbers and texts behind the page, as its script reads them.
nlohmann::ordered_json PageData(const Page& page);
// One HTML file that needs nothing else: no network, no other file.
std::string RenderPage(const Page& page);

}  // namespace strata

#endif  // STRATA_REPORT_PAGE_H_
