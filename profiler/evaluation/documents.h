// Documents: what fidelity is measured on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/tokenizer/tokenizer.h"

namespace headroom::profiler {

struct Document {
  std::string id;      // "wiki.test.raw#2048-3"
  std::string source;  // where it comes from: the file's name without its folders
  std::vector<int32_t> ids;
};

// How a file is cut: at most `max_documents` documents of `num_tokens` tokens.
struct DocumentCut {
  int32_t num_tokens = 0;
  int32_t max_documents = 0;
};

// Cuts a text into blocks of tokens and takes up to max_documents of them, spread evenly over the
// text from its first block on. With the tokenizer's BOS in front of each where the model wants
// one; it counts among num_tokens. Error: the text has not one such block.
StatusOr<std::vector<Document>> CutText(std::string_view text, const std::string& source,
                                        const models::Tokenizer& tokenizer, const DocumentCut& cut);

// The same for bytes as ids (models without a tokenizer that were trained on bytes): bytes of 128
// and above are left out.
StatusOr<std::vector<Document>> CutBytes(std::string_view text, const std::string& source,
                                         const DocumentCut& cut);

// Documents of a file of JSON lines: each line a list of ids, or an object with a list "ids" and
// optionally a string "id". Longer ones are cut to cut.num_tokens; at most cut.max_documents, the
// first ones. Errors name the line: not JSON, no ids, ids outside the vocabulary.
StatusOr<std::vector<Document>> ParseIdDocuments(std::string_view text, const std::string& source,
                                                 int32_t vocab_size, const DocumentCut& cut);

// The last part of a path.
std::string FileName(const std::string& path);
// A file whole; errors name `flag` and the path. At most 1 GiB.
StatusOr<std::string> ReadInput(const std::string& path, const std::string& flag);

}  // namespace headroom::profiler
