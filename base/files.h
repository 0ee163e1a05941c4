#ifndef STRATA_BASE_FILES_H_
#define STRATA_BASE_FILES_H_

#include <string>
#include <string_view>

namespace strata {

std::string ReadFile(const std::string& path);  // Error names the path and the system's reason
// All or nothing: writes PATH.tmp, flushes it to disk, renames it over PATH.
void WriteFileAtomically(const std::string& path, std::string_view contents);

}  // namespace strata

#endif  // STRATA_BASE_FILES_H_
