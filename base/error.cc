#include "base/error.h"

#include <algorithm>
#include <numeric>

namespace strata {

static size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

std::string Printable(const std::string& message) {
  constexpr size_t kMost = 2000;
  std::string line = message;
  if (line.size() > kMost) line = line.substr(0, kMost / 2) + " ... " + line.substr(line.size() - kMost / 2);
  for (size_t i = 0; i < line.size(); ++i) {
    const auto c = static_cast<unsigned char>(line[i]);
    const bool c1 = c == 0xc2 && i + 1 < line.size() && static_cast<unsigned char>(line[i + 1]) < 0xa0;
    if (c == '\n') {
      line[i] = ' ';
    } else if (c < 0x20 || c == 0x7f) {
      line[i] = '?';
    } else if (c1) {
      line.replace(i, 2, "?");
    }
  }
  return line;
}

std::string Nearest(const std::string& name, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = SIZE_MAX;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

int64_t CheckedProduct(int64_t a, int64_t b, const char* what) {
  int64_t product = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) {
    Fail("{}: expected a size that fits 63 bits, got {} x {}", what, a, b);
  }
  return product;
}

}  // namespace strata
