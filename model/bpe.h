#ifndef STRATA_MODEL_BPE_H_
#define STRATA_MODEL_BPE_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "model/tokenizer.h"

namespace strata {

// A tokenizer from the bytes of a SentencePiece model; `where` names them in errors.
std::unique_ptr<Tokenizer> MakeBpeTokenizer(const std::string& where, const std::string& model);

// Calls `text` for stretches that pieces may cover, at most `longest` bytes each and cut before a blank where
// there is one, and `single` for the characters between them that no piece ever holds: line ends, tabs, NUL
// and two that SentencePiece keeps for itself. `input` is valid UTF-8; all calls together cover it in order.
void SplitForBpe(std::string_view input, size_t longest, const std::function<void(std::string_view)>& text,
                 const std::function<void(std::string_view)>& single);

// Error `WHERE: expected valid UTF-8, got the byte 0xff at offset 12`.
void ExpectUtf8(const std::string& where, std::string_view text);

}  // namespace strata

#endif  // STRATA_MODEL_BPE_H_
