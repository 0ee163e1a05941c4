#include "base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/testing.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

using FilesTest = FolderTest;

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

TEST(FolderLock, KeepsASecondHolderOutUntilItEnds) {
  const std::string folder = std::filesystem::temp_directory_path();
  const std::string mine = folder + "/strata-lock-" + std::to_string(getpid());
  std::filesystem::create_directories(mine);
  {
    const FolderLock lock(mine);
    EXPECT_THROW(FolderLock second(mine), Error);
  }
  EXPECT_NO_THROW(FolderLock after(mine));
  EXPECT_THROW(FolderLock nowhere(mine + "/nowhere"), Error);
  std::filesystem::remove_all(mine);
}

}  // namespace
}  // namespace strata
