#include "base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <stdexcept>

#include "base/error.h"

namespace strata {
namespace {

constexpr size_t kChunk = size_t{1} << 20;

// Owns a descriptor for the length of a scope.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

std::string Reason(int code) { return std::strerror(code); }

// Appends what the descriptor has left to `contents`, until there are more than `most` bytes; returns errno
// or 0.
int ReadAll(int file, int64_t expected, int64_t most, std::string* contents) {
  contents->reserve(static_cast<size_t>(expected));
  for (;;) {
    const size_t used = contents->size();
    const size_t left = contents->capacity() - used;
    contents->resize(used + std::clamp<size_t>(left, 4096, kChunk));
    const ssize_t got = read(file, contents->data() + used, contents->size() - used);
    const int code = errno;
    contents->resize(used + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0 || static_cast<int64_t>(contents->size()) > most) return 0;
    if (got < 0 && code != EINTR) return code;
  }
}

// A rename is safe from a power cut only once the folder that holds the name is on disk too. Some file
// systems refuse to flush a folder; the file itself is flushed by then.
void FlushFolderOf(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const Descriptor descriptor{open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (descriptor.value >= 0) fsync(descriptor.value);
}

}  // namespace

std::string ReadFile(const std::string& path, int64_t most) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.value < 0) Fail("{}: expected a file that can be read, got: {}", path, Reason(errno));
  struct stat status;
  if (fstat(file.value, &status) != 0) Fail("{}: expected a file, got: {}", path, Reason(errno));
  if (S_ISDIR(status.st_mode)) Fail("{}: expected a file, got a folder", path);
  const int64_t size = S_ISREG(status.st_mode) ? int64_t{status.st_size} : 0;
  if (size > most) Fail("{}: expected at most {} bytes, got {}", path, most, size);
  std::string contents;
  try {
    // One byte more than the file holds, so that its end is seen without growing the string.
    const int code = ReadAll(file.value, size > 0 ? size + 1 : 0, most, &contents);
    if (code != 0) Fail("{}: expected to read it, got: {}", path, Reason(code));
  } catch (const std::bad_alloc&) {
    Fail("{}: expected a file that fits in memory, got {} bytes", path, status.st_size);
  } catch (const std::length_error&) {
    Fail("{}: expected a file that fits in memory, got {} bytes", path, status.st_size);
  }
  if (static_cast<int64_t>(contents.size()) > most)
    Fail("{}: expected at most {} bytes, got more", path, most);
  return contents;
}

void WriteFileAtomically(const std::string& path, std::string_view contents) {
  AtomicFile file(path);
  file.Write(contents.data(), static_cast<int64_t>(contents.size()));
  file.Commit();
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), temporary_(path + ".tmp") {
  struct stat status;
  // A rename would replace a folder's or a device's name, not write to it.
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    Fail("{}: expected a file to write, got {}", path, S_ISDIR(status.st_mode) ? "a folder" : "a device");
  }
  file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) FailErrno("create");
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) close(file_);
  if (!committed_) unlink(temporary_.c_str());
}

void AtomicFile::Write(const void* data, int64_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = write(file_, next, static_cast<size_t>(std::min<int64_t>(bytes, 1 << 30)));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) FailErrno("write");
    next += written;
    bytes -= written;
  }
}

void AtomicFile::Commit() {
  if (fsync(file_) != 0 && errno != EINVAL && errno != EROFS) FailErrno("flush");
  const int file = file_;
  file_ = -1;
  if (close(file) != 0) FailErrno("close");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) FailErrno("rename");
  committed_ = true;
  FlushFolderOf(path_);
}

void AtomicFile::FailErrno(const char* action) const {
  const int code = errno;
  Fail("{}: expected to {} {}, got: {}", path_, action, temporary_, Reason(code));
}

FolderLock::FolderLock(const std::string& folder)
    : descriptor_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) Fail("{}: expected a folder, got: {}", folder, std::strerror(errno));
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(descriptor_);
    Fail("{}: expected a folder of its own, got one that another strata is writing to", folder);
  }
}

FolderLock::~FolderLock() { close(descriptor_); }

}  // namespace strata
