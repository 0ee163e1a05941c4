#include "base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>

#include "base/error.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// The message of the Error that `f` throws; "" if it throws none.
std::string ErrorOf(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Lets no file grow beyond `bytes` for the length of a scope: writing fails as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit small = {bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit old_;
  void (*handler_)(int);
};

class FilesTest : public testing::Test {
 protected:
  FilesTest() {
    std::string name = testing::TempDir() + "strata-files-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~FilesTest() override { fs::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

TEST_F(FilesTest, ReadsBackWhatWasWritten) {
  std::string contents;
  for (int i = 0; i < 3'000'000; ++i) contents += static_cast<char>(i % 251);
  WriteFileAtomically(Path("a"), contents);
  EXPECT_TRUE(ReadFile(Path("a")) == contents);
  WriteFileAtomically(Path("a"), "");
  EXPECT_EQ(ReadFile(Path("a")), "");
  EXPECT_FALSE(fs::exists(Path("a.tmp")));
}

TEST_F(FilesTest, ReadsPipes) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "through a pipe", 14), 14);
  close(ends[1]);
  EXPECT_EQ(ReadFile("/dev/fd/" + std::to_string(ends[0])), "through a pipe");
  close(ends[0]);
}

TEST_F(FilesTest, ReadErrorsNamePathAndReason) {
  EXPECT_THAT(ErrorOf([&] { ReadFile(Path("none")); }),
              AllOf(HasSubstr(Path("none")), HasSubstr("No such file")));
  EXPECT_EQ(ErrorOf([&] { ReadFile(folder_); }), folder_ + ": expected a file, got a folder");
  if (geteuid() == 0) return;  // root reads everything
  WriteFileAtomically(Path("locked"), "x");
  fs::permissions(Path("locked"), fs::perms::none);
  EXPECT_THAT(ErrorOf([&] { ReadFile(Path("locked")); }), HasSubstr("Permission denied"));
}

TEST_F(FilesTest, WriteErrorsNamePathAndReason) {
  EXPECT_THAT(ErrorOf([&] { WriteFileAtomically(Path("no/such/folder"), "x"); }),
              AllOf(HasSubstr(Path("no/such/folder")), HasSubstr("No such file")));
  EXPECT_EQ(ErrorOf([&] { WriteFileAtomically(folder_, "x"); }),
            folder_ + ": expected a file to write, got a folder");
  EXPECT_EQ(ErrorOf([&] { WriteFileAtomically("/dev/null", "x"); }),
            "/dev/null: expected a file to write, got a device");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(FilesTest, FullDiskKeepsTheOldFile) {
  WriteFileAtomically(Path("a"), "old");
  std::string message;
  {
    const FullDisk disk(1000);
    message = ErrorOf([&] { WriteFileAtomically(Path("a"), std::string(5000, 'n')); });
  }
  EXPECT_THAT(message, AllOf(HasSubstr(Path("a")), HasSubstr("File too large")));
  EXPECT_EQ(ReadFile(Path("a")), "old");
  EXPECT_FALSE(fs::exists(Path("a.tmp")));
}

TEST_F(FilesTest, UncommittedFileLeavesNothing) {
  WriteFileAtomically(Path("a"), "old");
  {
    AtomicFile file(Path("a"));
    file.Write("new", 3);
    EXPECT_EQ(ReadFile(Path("a")), "old");
  }
  EXPECT_EQ(ReadFile(Path("a")), "old");
  EXPECT_FALSE(fs::exists(Path("a.tmp")));
  AtomicFile file(Path("a"));
  file.Write("two ", 4);
  file.Write("parts", 5);
  file.Commit();
  EXPECT_EQ(ReadFile(Path("a")), "two parts");
}

}  // namespace
}  // namespace strata
