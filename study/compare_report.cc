#include "study/compare_report.h"

#include <algorithm>
#include <utility>

#include "base/options.h"
#include "base/progress.h"
#include "report/page.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

constexpr const char* kNone = "-";

ordered_json OrNull(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

bool IsStandard(const ComparedArm& arm) { return arm.residual == "standard"; }

std::string Interval(const ComparedArm& arm) {
  return fmt::format("{:+.4f} to {:+.4f}", *arm.difference_low, *arm.difference_high);
}

const ComparedArm& Lowest(const std::vector<const ComparedArm*>& arms) {
  return **std::min_element(arms.begin(), arms.end(),
                            [](const ComparedArm* a, const ComparedArm* b) { return a->loss < b->loss; });
}

// 1234567 -> "1,234,567".
std::string Thousands(int64_t value) {
  std::string text = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

std::string Plural(int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

ordered_json ToJson(const ComparedArm& arm) {
  return {{"residual", arm.residual},
          {"parameters", arm.parameters},
          {"tokens", arm.tokens},
          {"seeds", arm.losses.size()},
          {"loss", arm.loss},
          {"nats_per_byte", arm.nats_per_byte > 0 ? ordered_json(arm.nats_per_byte) : ordered_json(nullptr)},
          {"difference", OrNull(arm.difference)},
          {"difference_low", OrNull(arm.difference_low)},
          {"difference_high", OrNull(arm.difference_high)},
          {"relative_step_time", OrNull(arm.relative_step_time)},
          {"peak_bytes", arm.peak_bytes},
          {"resumed", arm.resumed}};
}

std::vector<std::vector<std::string>> TableOf(const Comparison& comparison) {
  std::vector<std::vector<std::string>> rows = {
      {"residual", "parameters", "loss", "nats/byte", "difference", "95 % interval", "step time", "memory"}};
  for (const ComparedArm& arm : comparison.arms) {
    const bool baseline = IsStandard(arm);
    rows.push_back({arm.residual + (arm.resumed ? " *" : ""), Thousands(arm.parameters),
                    fmt::format("{:.4f}", arm.loss),
                    arm.nats_per_byte > 0 ? fmt::format("{:.4f}", arm.nats_per_byte) : kNone,
                    baseline         ? "baseline"
                    : arm.difference ? fmt::format("{:+.4f}", *arm.difference)
                                     : kNone,
                    baseline || !arm.difference_low ? kNone : Interval(arm),
                    arm.relative_step_time ? fmt::format("{:.2f}x", *arm.relative_step_time) : kNone,
                    FormatBytes(static_cast<double>(arm.peak_bytes))});
  }
  return rows;
}

std::string AlignTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.at(0).size());
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) {
      text += c == 0 ? fmt::format("{:<{}}", row[c], widths[c]) : fmt::format("  {:>{}}", row[c], widths[c]);
    }
    text += '\n';
  }
  return text;
}

std::string AnswerOf(const Comparison& comparison) {
  std::vector<const ComparedArm*> all, others;
  for (const ComparedArm& arm : comparison.arms) {
    all.push_back(&arm);
    if (!IsStandard(arm)) others.push_back(&arm);
  }
  const ComparedArm& best = Lowest(all);
  if (others.size() == all.size() || others.empty()) {
    return fmt::format(
        "{} has the lowest validation loss, {:.4f} nats per token. Without standard beside "
        "another connection there is no difference to judge.",
        best.residual, best.loss);
  }
  const ComparedArm& nearest = Lowest(others);  // the best that is not standard
  const double difference = *nearest.difference;
  const std::string size = fmt::format("{:.4f} nats per token {} standard", std::abs(difference),
                                       difference < 0 ? "below" : "above");
  if (!nearest.difference_low) {
    return fmt::format(
        "Not resolved: with one seed, {} ends {}, but one seed cannot tell a difference from "
        "chance. Give --seeds 2 or more.",
        nearest.residual, size);
  }
  const std::string interval = fmt::format("95 % interval {}, {}", Interval(nearest),
                                           Plural(static_cast<int64_t>(nearest.losses.size()), "seed"));
  if (*nearest.difference_high < 0) {
    return fmt::format("{} has the lowest validation loss, {} ({}).", nearest.residual, size, interval);
  }
  const bool standard_best = std::all_of(others.begin(), others.end(),
                                         [](const ComparedArm* arm) { return *arm->difference_low > 0; });
  if (standard_best) {
    return fmt::format("standard has the lowest validation loss; the nearest, {}, is {} ({}).",
                       nearest.residual, size, interval);
  }
  std::string answer = fmt::format("Not resolved: {} comes out {}, but its interval includes zero ({}).",
                                   nearest.residual, size, interval);
  for (const ComparedArm* arm : others) {
    if (*arm->difference_high >= 0) continue;
    answer += fmt::format(" {} is resolved, {:.4f} below standard ({}).", arm->residual, -*arm->difference,
                          Interval(*arm));
  }
  return answer;
}

std::vector<std::string> NotesOf(const Comparison& comparison) {
  std::vector<std::string> notes;
  const bool standard = std::any_of(comparison.arms.begin(), comparison.arms.end(), IsStandard);
  const int64_t seeds = comparison.options.seeds;
  notes.push_back(fmt::format(
      "Loss: validation, nats per token, mean over {}, each after {} training tokens.", Plural(seeds, "seed"),
      comparison.arms.empty() ? "0" : Thousands(comparison.arms[0].tokens)));
  if (!standard) {
    notes.push_back("Difference: none, since standard was not trained beside.");
  } else if (seeds == 1) {
    notes.push_back(
        "Difference: loss minus that of standard. One seed gives no interval; give --seeds 2 or "
        "more.");
  } else {
    notes.push_back(
        "Difference: loss minus that of standard with the same seed, mean over seeds; interval by "
        "Student's t over the pairs, for each connection by itself.");
  }
  const EvalResult& unigram = comparison.unigram;
  std::string yardstick =
      fmt::format("For scale: token frequencies alone reach {:.4f} nats per token", unigram.nats_per_token);
  if (unigram.nats_per_byte > 0) yardstick += fmt::format(", {:.4f} per byte", unigram.nats_per_byte);
  notes.push_back(yardstick + ", on the same validation tokens.");
  const bool timed = std::any_of(comparison.arms.begin(), comparison.arms.end(),
                                 [](const ComparedArm& arm) { return arm.relative_step_time.has_value(); });
  notes.push_back(timed ? "Step time: relative to standard, measured in turns on this machine. Memory: what "
                          "training holds."
                        : "Step time: not measured, since the models do not fit into memory side by side. "
                          "Memory: what training holds.");
  if (std::any_of(comparison.arms.begin(), comparison.arms.end(),
                  [](const auto& arm) { return arm.resumed; })) {
    notes.push_back(
        "* A run of this connection was interrupted and went on from its checkpoint; the numbers "
        "are those of a run without a break.");
  }
  return notes;
}

std::string ReportOf(const Comparison& comparison, const std::string& command) {
  Page page;
  page.title = "Residual connections compared";
  page.answer = AnswerOf(comparison);
  page.notes = NotesOf(comparison);
  page.prompt = comparison.options.prompt;
  page.command = command;
  const auto rows = TableOf(comparison);
  page.header = rows[0];
  for (size_t a = 0; a < comparison.arms.size(); ++a) {
    const ComparedArm& arm = comparison.arms[a];
    PageArm shown{arm.residual, rows[a + 1], {}, arm.sample};
    for (int64_t i = 0; i < comparison.options.seeds; ++i) {
      shown.runs.push_back(
          ReadRecords(fmt::format("{}/seed-{}/metrics.jsonl", arm.folder, comparison.training.seed + i)));
      if (shown.runs.back().cut) {
        page.notes.push_back(fmt::format("The last line of the metrics of {} seed {} is cut and left out.",
                                         arm.residual, comparison.training.seed + i));
      }
    }
    page.arms.push_back(std::move(shown));
  }
  const auto add = [&](const char* name, const auto& field, const char*) { page.options[name] = field; };
  ModelConfig::Visit(comparison.model, add);
  TrainOptions::Visit(comparison.training, add);
  CompareOptions::Visit(comparison.options, add);
  page.options.erase("tokens");
  return RenderPage(page);
}

}  // namespace strata
