#include "report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "report/curves.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ReportTest : public ::testing::Test {
 protected:
  ReportTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = fs::temp_directory_path() / fmt::format("strata-report-{}-{}", info->name(), getpid());
  }
  ~ReportTest() override { fs::remove(path_); }
  Records Read(const std::string& text) const {
    std::ofstream(path_) << text;
    return ReadRecords(path_);
  }
  // A run of `steps` steps, evaluated at every second one: loss 5 - step / 8 + shift.
  static Records Run(int64_t steps, double shift) {
    Records run;
    for (int64_t step = 1; step <= steps; ++step) {
      Record record;
      record.step = step;
      record.tokens = step * 64;
      record.loss = 5 - static_cast<double>(step) / 8 + shift;
      if (step % 2 == 0) {
        record.validation_loss = record.loss + 0.25;
        record.state_rms = {1, 2 + shift, static_cast<double>(step)};
        record.update_rms = {0.5, 0.25, 0.125 + shift};
      }
      run.lines.push_back(record);
    }
    return run;
  }
  static Page TwoArms() {
    Page page;
    page.title = "A <b> & \"c\"";
    page.answer = "Answer </script><img src=x onerror=alert(1)> {{script}}";
    page.header = {"residual", "loss"};
    page.arms = {{"standard", {"standard", "4.3"}, {Run(4, 0), Run(4, 0.5)}, "text"},
                 {"mhc", {"mhc", "4.0"}, {Run(4, -0.25), Run(4, 0.5)}, "\xff </SCRIPT>"}};
    page.prompt = "<!-- <script>";
    page.command = "strata compare --out '</script>'";
    page.options["lr"] = 0.001;
    return page;
  }

  std::string path_;
};

TEST_F(ReportTest, ReadsRecords) {
  const Records records =
      Read(R"({"step":1,"tokens":64,"loss":5.5,"gradient_norm":1,"lr":0.1,"tokens_per_second":9,"seconds":1})"
           "\n"
           R"({"step":2,"tokens":128,"loss":4.5,"validation_loss":4.75,"validation_nats_per_byte":1.5,)"
           R"("state_rms":[1,2],"update_rms":[3,4],"resumed":true})"
           "\n");
  ASSERT_EQ(records.lines.size(), 2u);
  EXPECT_FALSE(records.cut);
  EXPECT_TRUE(records.resumed());
  EXPECT_EQ(records.lines[0].loss, 5.5);
  EXPECT_LT(records.lines[0].validation_loss, 0);
  EXPECT_EQ(records.lines[1].step, 2);
  EXPECT_EQ(records.lines[1].tokens, 128);
  EXPECT_EQ(records.lines[1].validation_loss, 4.75);
  EXPECT_EQ(records.lines[1].validation_nats_per_byte, 1.5);
  EXPECT_THAT(records.lines[1].state_rms, ElementsAre(1, 2));
  EXPECT_THAT(records.lines[1].update_rms, ElementsAre(3, 4));
}

TEST_F(ReportTest, ACutLastLineIsLeftOutAndSaid) {
  const std::string line = R"({"step":1,"tokens":64,"loss":5.5})";
  for (const size_t kept : {size_t{1}, size_t{9}, line.size()}) {
    const Records records = Read(line + "\n" + line.substr(0, kept));
    EXPECT_EQ(records.lines.size(), 1u);
    EXPECT_TRUE(records.cut);
    EXPECT_FALSE(records.resumed());
  }
}

TEST_F(ReportTest, AFaultyLineIsNamed) {
  const std::string line = R"({"step":1,"tokens":64,"loss":5.5})";
  for (const char* fault :
       {"{", "[]", "3", R"({"step":2,"tokens":64})", R"({"step":"x","tokens":1,"loss":1})"}) {
    try {
      Read(line + "\n" + fault + "\n" + line + "\n");
      ADD_FAILURE() << fault;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(path_ + ":2: expected a record"));
      EXPECT_THAT(error.what(), HasSubstr(fault));
    }
  }
  EXPECT_THROW(ReadRecords(path_ + ".none"), Error);
}

TEST_F(ReportTest, BandsKeepWhatAllRunsHave) {
  const std::vector<Records> runs = {Run(6, 0), Run(4, 0.5)};
  const Band validation = ValidationBand(runs);
  EXPECT_THAT(validation.x, ElementsAre(2, 4));
  EXPECT_THAT(validation.low, ElementsAre(5, 4.75));
  EXPECT_THAT(validation.mean, ElementsAre(5.25, 5));
  EXPECT_THAT(validation.high, ElementsAre(5.5, 5.25));
  const Band state = StateBand(runs);
  EXPECT_THAT(state.x, ElementsAre(1, 2, 3));
  EXPECT_THAT(state.mean, ElementsAre(1, 2.25, 5));
  EXPECT_THAT(UpdateBand(runs).high, ElementsAre(0.5, 0.25, 0.625));
  EXPECT_TRUE(ValidationBand({}).x.empty());
  EXPECT_TRUE(StateBand({Run(1, 0)}).x.empty());
}

TEST_F(ReportTest, TrainingLossIsSmoothedOverWholeWidths) {
  const Band band = TrainingBand({Run(7, 0), Run(7, 0.5)}, 3);
  EXPECT_THAT(band.x, ElementsAre(2, 5));
  EXPECT_THAT(band.mean, ElementsAre(5, 4.625));
  EXPECT_THAT(band.low, ElementsAre(4.75, 4.375));
  EXPECT_EQ(SmoothingWidth({Run(7, 0), Run(9, 0)}, 4), 3);
  EXPECT_EQ(SmoothingWidth({Run(7, 0)}, 200), 1);
  EXPECT_EQ(SmoothingWidth({}, 200), 1);
}

TEST_F(ReportTest, DifferencesAreOfEqualSeeds) {
  const Band band = DifferenceBand({Run(4, 1), Run(4, 5)}, {Run(4, 0.5), Run(6, 4.75)});
  EXPECT_THAT(band.x, ElementsAre(2, 4));
  EXPECT_THAT(band.low, ElementsAre(0.25, 0.25));
  EXPECT_THAT(band.mean, ElementsAre(0.375, 0.375));
  EXPECT_THAT(band.high, ElementsAre(0.5, 0.5));
}

// What stands between <script type="application/json" id="data"> and the next </script>.
nlohmann::json DataOf(const std::string& html) {
  const std::string open = "id=\"data\">";
  const size_t begin = html.find(open) + open.size();
  return nlohmann::json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

TEST_F(ReportTest, NumbersOfThePageAreThoseOfTheRecords) {
  const nlohmann::json data = DataOf(RenderPage(TwoArms()));
  ASSERT_EQ(data["arms"].size(), 2u);
  EXPECT_EQ(data["arms"][0]["validation"]["x"], nlohmann::json({2, 4}));
  EXPECT_EQ(data["arms"][0]["validation"]["mean"], nlohmann::json({5.25, 5.0}));
  EXPECT_EQ(data["arms"][1]["validation"]["low"], nlohmann::json({4.75, 4.5}));
  EXPECT_EQ(data["arms"][1]["difference"]["mean"], nlohmann::json({-0.125, -0.125}));
  EXPECT_EQ(data["arms"][1]["difference"]["low"], nlohmann::json({-0.25, -0.25}));
  EXPECT_FALSE(data["arms"][0].contains("difference"));
  EXPECT_EQ(data["arms"][0]["training"]["x"], nlohmann::json({1, 2, 3, 4}));
  EXPECT_EQ(data["arms"][0]["training"]["high"], nlohmann::json({5.375, 5.25, 5.125, 5.0}));
  EXPECT_EQ(data["arms"][1]["update"]["mean"], nlohmann::json({0.5, 0.25, 0.25}));
  EXPECT_EQ(data["arms"][1]["cells"], nlohmann::json({"mhc", "4.0"}));
  EXPECT_EQ(data["options"]["lr"], 0.001);
}

TEST_F(ReportTest, TextsCannotLeaveTheirPlace) {
  const Page page = TwoArms();
  const std::string html = RenderPage(page);
  const std::string head = html.substr(0, html.find("Licensed to the Apache"));
  EXPECT_LT(head.size(), 20000u);
  EXPECT_THAT(head, Not(HasSubstr("<img")));
  EXPECT_THAT(head, Not(HasSubstr("</SCRIPT>")));
  EXPECT_THAT(head, Not(HasSubstr("<!-- <script>")));
  EXPECT_THAT(html, HasSubstr("<title>A &lt;b&gt; &amp; &quot;c&quot;</title>"));
  const nlohmann::json data = DataOf(html);
  EXPECT_EQ(data["answer"], page.answer);
  EXPECT_EQ(data["prompt"], page.prompt);
  EXPECT_EQ(data["command"], page.command);
  EXPECT_EQ(data["arms"][1]["sample"], "\xef\xbf\xbd </SCRIPT>");
}

TEST_F(ReportTest, ThePageLoadsNothing) {
  const std::string html = RenderPage(TwoArms());
  EXPECT_GT(html.size(), 500000u);
  for (const char* reference : {" src=", "@import", "url(", "<link rel=\"style"}) {
    const size_t before_charts = html.find("id=\"data\"");
    EXPECT_EQ(html.substr(0, before_charts).find(reference), std::string::npos) << reference;
  }
}

}  // namespace
}  // namespace strata
