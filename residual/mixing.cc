#include "residual/mixing.h"

namespace strata {
namespace {

using Row = std::vector<double>;  // factors of the embedding and all updates

bool PerChannel(const Rule& rule) {
  return rule.read == Coef::kChannel || rule.keep == Coef::kChannel || rule.write == Coef::kChannel;
}

void AddTo(Row* to, double factor, const Row& row) {
  for (size_t i = 0; i < row.size(); ++i) (*to)[i] += factor * row[i];
}

// What each slot is made of after the write of `site`.
void WriteRows(const Rule& rule, const Coefs<double>& coefs, int64_t t, int site, std::vector<Row>* slots) {
  const size_t sources = slots->front().size(), update = static_cast<size_t>(site) + 1;
  if (rule.append) {
    slots->emplace_back(sources, 0.0);
    slots->back()[update] = 1;
    return;
  }
  const auto open = static_cast<size_t>(rule.open()), closed = static_cast<size_t>(rule.closed);
  const auto token = static_cast<size_t>(t);
  std::vector<Row> next(open, Row(sources, 0.0));
  for (size_t j = 0; j < open; ++j) {
    for (size_t k = 0; k < open; ++k) {
      double keep = j == k ? 1 : 0;
      if (rule.keep == Coef::kMatrix) keep = coefs.keep.data()[(token * open + j) * open + k];
      if (rule.keep == Coef::kToken && j == k) keep = coefs.keep.data()[token * open + j];
      if (keep != 0) AddTo(&next[j], keep, (*slots)[closed + k]);
    }
    next[j][update] += rule.write == Coef::kOne ? 1 : coefs.write.data()[token * open + j];
  }
  for (size_t j = 0; j < open; ++j) (*slots)[closed + j] = next[j];
}

}  // namespace

std::vector<double> DepthMixing(const Mechanism<double>& mechanism, const Walker<double>& walker) {
  const int sites = mechanism.sites();
  for (int site = 0; site <= sites; ++site) {
    if (PerChannel(mechanism.At(site))) return {};
  }
  const size_t sources = static_cast<size_t>(sites) + 1;
  std::vector<double> mixing;
  for (int64_t t = 0; t < walker.state(0).tokens; ++t) {
    std::vector<Row> slots(static_cast<size_t>(mechanism.open_slots()), Row(sources, 0.0));
    for (Row& slot : slots) slot[0] = 1;
    for (int site = 0; site <= sites; ++site) {
      const Rule rule = mechanism.At(site);
      const Coefs<double> coefs = walker.coefs(site);
      Row read(sources, 0.0);
      for (size_t k = 0; k < slots.size(); ++k) {
        const size_t at = static_cast<size_t>(t) * slots.size() + k;
        AddTo(&read, rule.read == Coef::kOne ? 1 : coefs.read.data()[at], slots[k]);
      }
      mixing.insert(mixing.end(), read.begin(), read.end());
      if (site < sites) WriteRows(rule, coefs, t, site, &slots);
    }
  }
  return mixing;
}

}  // namespace strata
