// Small vocabularies for tokenizer tests.
#pragma once

#include <string>
#include <vector>

#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/utf8.h"
#include "models/tokenizer/vocabulary.h"

namespace headroom::models {

// Byte-level: ids 0..255 are the bytes; then "he", "ll", "hell", "hello", "Ġhello", a control
// token "<|end|>" (EOS), user-defined "ø" and "<tool>".
struct ByteLevelIds {
  static constexpr int32_t kHe = 256, kLl = 257, kHell = 258, kHello = 259, kSpaceHello = 260,
                           kEnd = 261, kOSlash = 262, kTool = 263;
};

inline TokenizerData ByteLevelData() {
  TokenizerData data;
  data.model = "gpt2";
  data.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.emplace_back();
    AppendUtf8(ByteLevelLetter(static_cast<uint8_t>(byte)), &data.tokens.back());
  }
  for (const char* piece :
       {"he", "ll", "hell", "hello", "\xC4\xA0hello", "<|end|>", "\xC3\xB8", "<tool>"}) {
    data.tokens.emplace_back(piece);
  }
  data.token_types.assign(data.tokens.size(), TokenType::kNormal);
  data.token_types[ByteLevelIds::kEnd] = TokenType::kControl;
  data.token_types[ByteLevelIds::kOSlash] = TokenType::kUserDefined;
  data.token_types[ByteLevelIds::kTool] = TokenType::kUserDefined;
  data.merges = {"h e", "l l", "he ll", "hell o", "\xC4\xA0 hello"};
  data.eos_id = ByteLevelIds::kEnd;
  return data;
}

// SentencePiece-style: <unk>, <s>, </s>, 256 bytes (ids 3..258), then normal pieces with scores.
inline TokenizerData SentencePieceData() {
  TokenizerData data;
  data.model = "llama";
  data.tokens = {"<unk>", "<s>", "</s>"};
  data.token_types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl};
  data.scores = {0, 0, 0};
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(fmt::format("<0x{:02X}>", byte));
    data.token_types.push_back(TokenType::kByte);
    data.scores.push_back(0);
  }
  float score = -1;
  for (const char* piece : {"\xE2\x96\x81"
                            "a",
                            "ab", "abc", "s>", "\xE2\x96\x81", "a", "b", "c", "s", "<", ">", "/"}) {
    data.tokens.emplace_back(piece);
    data.token_types.push_back(TokenType::kNormal);
    data.scores.push_back(score);
    score -= 1;
  }
  data.unk_id = 0;
  data.bos_id = 1;
  data.eos_id = 2;
  data.add_bos = true;
  return data;
}

}  // namespace headroom::models
