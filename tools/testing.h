#ifndef STRATA_TOOLS_TESTING_H_
#define STRATA_TOOLS_TESTING_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/files.h"

namespace strata {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Result {
  int code = -1;
  std::string out, err;
};

// Runs the program through the shell, as a user would.
class ToolsTest : public ::testing::Test {
 protected:
  ToolsTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / fmt::format("strata-tools-{}-{}", info->name(), getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::ofstream text(folder_ + "/text.txt");
    for (int i = 0; i < 300; ++i) text << "Layer " << i % 17 << " rests on layer " << (i * 7) % 13 << ".\n";
  }
  ~ToolsTest() override { fs::remove_all(folder_); }

  Result Run(const std::string& arguments) const {
    const std::string command =
        fmt::format("cd '{}' && ( '{}' {} ) >out.tmp 2>err.tmp", folder_, STRATA_EXECUTABLE, arguments);
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadFile(folder_ + "/out.tmp"),
            ReadFile(folder_ + "/err.tmp")};
  }
  // A small run on the text in folder `out`.
  Result Train(const std::string& out, const std::string& more = "") const {
    return Run(
        fmt::format("train --blocks 2 --dim 16 --heads 2 --context 16 --batch 2 --steps 6 --evaluate 3 "
                    "--precision f32 --threads 1 --text text.txt --out {} {}",
                    out, more));
  }
  // Fails with one line `strata: ...` that contains `part`.
  void ExpectError(const Result& result, int code, const std::string& part) const {
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_EQ(result.err.substr(0, 8), "strata: ");
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr(part));
  }

  std::string folder_;
};

}  // namespace strata

#endif  // STRATA_TOOLS_TESTING_H_
