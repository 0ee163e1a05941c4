#ifndef STRATA_BASE_FILES_H_
#define STRATA_BASE_FILES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

// Error names the path and the system's reason, or says that there are more than `most` bytes.
std::string ReadFile(const std::string& path, int64_t most = INT64_MAX);
// All or nothing: writes PATH.tmp, flushes it to disk, renames it over PATH.
void WriteFileAtomically(const std::string& path, std::string_view contents);

// The same for contents that come in parts. Without a Commit that succeeds, PATH stays as it was and PATH.tmp
// is removed. Every failure (a full disk, no such folder, PATH is a folder or a device) is an Error.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void Write(const void* data, int64_t bytes);
  void Commit();

 private:
  [[noreturn]] void FailErrno(const char* action) const;

  std::string path_, temporary_;
  int file_ = -1;
  bool committed_ = false;
};

// Holds a folder for one program at a time; Error if another holds it. Ends with the object or the program.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace strata

#endif  // STRATA_BASE_FILES_H_
