// Connections whose coefficients are fixed or learned numbers.
#include "residual/papers_testing.h"

namespace strata {
namespace {

TEST(Standard, ReadsTheSumOfTheEmbeddingAndAllUpdates) {
  const Mat given{{0, 4, 0}, {0, 0, 6}};
  Model model("standard", 2, 3);
  const Mat all =
      model.Run({2, 0, 0}, [&](int site, const Vec&) { return given[static_cast<size_t>(site)]; });
  EXPECT_EQ(all, (Mat{{2, 0, 0}, {2, 4, 0}, {2, 4, 6}}));
}

}  // namespace
}  // namespace strata
