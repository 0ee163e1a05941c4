#ifndef STRATA_BASE_TESTING_H_
#define STRATA_BASE_TESTING_H_

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/files.h"

namespace strata {

// The message of the Error that `f` throws; "" if it throws none.
template <class F>
std::string ErrorOf(F&& f) {
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

// A test with a folder of its own that is gone afterwards.
class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    std::string name = testing::TempDir() + "strata-test-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Put(const std::string& name, const std::string& contents) const {
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
    WriteFileAtomically(Path(name), contents);
    return Path(name);
  }

  std::string folder_;
};

}  // namespace strata

#endif  // STRATA_BASE_TESTING_H_
