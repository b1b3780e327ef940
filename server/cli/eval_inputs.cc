#include "server/cli/eval_inputs.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "profiler/evaluation/needle_files.h"
#include "profiler/evaluation/needle_generator.h"
#include "server/cli/common_flags.h"
#include "server/cli/eval_grid.h"

namespace headroom::server {
namespace {

using profiler::Document;
using profiler::NeedlePrompt;
using profiler::NeedleTask;

constexpr int64_t kMostDocTokens = 1 << 24;

// The lengths and numbers of documents that each text is cut into.
StatusOr<std::vector<profiler::DocumentCut>> MakeCuts(const EvalInputFlags& flags) {
  HEADROOM_ASSIGN_OR_RETURN(const auto lengths, ParseNumbers(flags.doc_tokens, "--doc-tokens"));
  HEADROOM_ASSIGN_OR_RETURN(auto counts, ParseNumbers(flags.docs, "--docs"));
  if (counts.size() == 1) {
    counts.resize(lengths.size(), counts.front());
  }
  if (counts.size() != lengths.size()) {
    return InvalidArgument("--docs: got {} numbers, wanted one, or one for each of the {} lengths",
                           counts.size(), lengths.size());
  }
  std::vector<profiler::DocumentCut> cuts;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] <= flags.continuation || lengths[i] > kMostDocTokens) {
      return InvalidArgument(
          "--doc-tokens: got {}, wanted more than the {} of --continuation and at most {}",
          lengths[i], flags.continuation, kMostDocTokens);
    }
    if (counts[i] < 1 || counts[i] > 1 << 20) {
      return InvalidArgument("--docs: got {}, wanted 1 or more", counts[i]);
    }
    cuts.push_back({.num_tokens = static_cast<int32_t>(lengths[i]),
                    .max_documents = static_cast<int32_t>(counts[i])});
  }
  return cuts;
}

Status NeedsTokenizer(const char* flag, const Runtime& runtime) {
  if (runtime.tokenizer() == nullptr) {
    return InvalidArgument("{}: {} has no tokenizer, it takes token ids only", flag,
                           runtime.model_name());
  }
  return OkStatus();
}

profiler::TextFormat FormatOf(const Runtime& runtime, const Clock& clock) {
  return {
      .tokenizer = *runtime.tokenizer(), .chat_template = runtime.chat_template(), .clock = clock};
}

StatusOr<std::vector<NeedlePrompt>> EncodeAll(const std::vector<profiler::TextNeedle>& needles,
                                              const EvalInputFlags& flags, const Runtime& runtime,
                                              const Clock& clock) {
  std::vector<NeedlePrompt> prompts;
  for (const profiler::TextNeedle& needle : needles) {
    HEADROOM_ASSIGN_OR_RETURN(
        NeedlePrompt prompt,
        profiler::EncodeNeedle(FormatOf(runtime, clock), needle,
                               static_cast<int32_t>(flags.rank_candidates), flags.seed));
    if (prompt.length == 0) {
      prompt.length = static_cast<int32_t>(prompt.ids.size());
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

StatusOr<NeedleTask> ReadNeedleFile(const std::string& path, const EvalInputFlags& flags,
                                    const Runtime& runtime, const Clock& clock) {
  HEADROOM_ASSIGN_OR_RETURN(const std::string text, profiler::ReadInput(path, "--needles"));
  NeedleTask task;
  task.name = profiler::FileName(path);
  HEADROOM_ASSIGN_OR_RETURN(auto lines,
                            profiler::ParseNeedles(text, task.name, runtime.config().vocab_size,
                                                   static_cast<int32_t>(flags.needle_count)));
  if (auto* prompts = std::get_if<std::vector<NeedlePrompt>>(&lines)) {
    task.prompts = std::move(*prompts);
    profiler::AddCandidates(task.prompts, static_cast<int32_t>(flags.rank_candidates), flags.seed);
    return task;
  }
  HEADROOM_RETURN_IF_ERROR(NeedsTokenizer("--needles", runtime));
  HEADROOM_ASSIGN_OR_RETURN(
      task.prompts,
      EncodeAll(std::get<std::vector<profiler::TextNeedle>>(lines), flags, runtime, clock));
  return task;
}

StatusOr<NeedleTask> MakeTask(const std::string& name, const std::string& haystack,
                              const EvalInputFlags& flags, const Runtime& runtime,
                              const Clock& clock) {
  HEADROOM_ASSIGN_OR_RETURN(const auto lengths,
                            ParseNumbers(flags.needle_length, "--needle-length"));
  NeedleTask task;
  task.name = name;
  for (const int64_t length : lengths) {
    if (length < 1 || length > runtime.max_context()) {
      return InvalidArgument("--needle-length: got {}, wanted 1 to the context of {}", length,
                             runtime.max_context());
    }
    const profiler::NeedleRequest request = {.length = static_cast<int32_t>(length),
                                             .count = static_cast<int32_t>(flags.needle_count),
                                             .seed = flags.seed};
    std::vector<NeedlePrompt> prompts;
    if (name == "text") {
      HEADROOM_RETURN_IF_ERROR(NeedsTokenizer("--make-needles text", runtime));
      const profiler::TextFormat format = FormatOf(runtime, clock);
      HEADROOM_ASSIGN_OR_RETURN(const auto needles,
                                profiler::MakeTextNeedles(format, haystack, request));
      HEADROOM_ASSIGN_OR_RETURN(prompts, EncodeAll(needles, flags, runtime, clock));
    } else {
      HEADROOM_ASSIGN_OR_RETURN(
          prompts, profiler::MakeIdNeedles(name, haystack, request, runtime.config().vocab_size));
      profiler::AddCandidates(prompts, static_cast<int32_t>(flags.rank_candidates), flags.seed);
    }
    std::move(prompts.begin(), prompts.end(), std::back_inserter(task.prompts));
  }
  return task;
}

}  // namespace

StatusOr<std::vector<Document>> ReadDocuments(const EvalInputFlags& flags, const Runtime& runtime) {
  HEADROOM_ASSIGN_OR_RETURN(const auto cuts, MakeCuts(flags));
  std::vector<Document> documents;
  const auto add = [&documents](StatusOr<std::vector<Document>> more) -> Status {
    HEADROOM_RETURN_IF_ERROR(more.status());
    std::move(more->begin(), more->end(), std::back_inserter(documents));
    return OkStatus();
  };
  if (!flags.texts.empty()) {
    HEADROOM_RETURN_IF_ERROR(NeedsTokenizer("--text", runtime));
  }
  for (const profiler::DocumentCut& cut : cuts) {
    for (const std::string& path : flags.texts) {
      HEADROOM_ASSIGN_OR_RETURN(const std::string text, profiler::ReadInput(path, "--text"));
      HEADROOM_RETURN_IF_ERROR(
          add(profiler::CutText(text, profiler::FileName(path), *runtime.tokenizer(), cut)));
    }
    for (const std::string& path : flags.byte_texts) {
      if (runtime.config().vocab_size < 128) {
        return InvalidArgument("--text-bytes: the vocabulary has {} ids, wanted at least 128",
                               runtime.config().vocab_size);
      }
      HEADROOM_ASSIGN_OR_RETURN(const std::string text, profiler::ReadInput(path, "--text-bytes"));
      HEADROOM_RETURN_IF_ERROR(add(profiler::CutBytes(text, profiler::FileName(path), cut)));
    }
  }
  // Documents of ids have their own lengths; the longest cut bounds them.
  const auto longest = std::max_element(cuts.begin(), cuts.end(), [](const auto& a, const auto& b) {
    return a.num_tokens < b.num_tokens;
  });
  for (const std::string& path : flags.id_files) {
    HEADROOM_ASSIGN_OR_RETURN(const std::string text, profiler::ReadInput(path, "--ids"));
    HEADROOM_RETURN_IF_ERROR(add(profiler::ParseIdDocuments(
        text, profiler::FileName(path), runtime.config().vocab_size, *longest)));
  }
  return documents;
}

StatusOr<std::vector<NeedleTask>> ReadNeedles(const EvalInputFlags& flags, const Runtime& runtime,
                                              const Clock& clock) {
  std::vector<NeedleTask> tasks;
  for (const std::string& path : flags.needle_files) {
    HEADROOM_ASSIGN_OR_RETURN(NeedleTask task, ReadNeedleFile(path, flags, runtime, clock));
    tasks.push_back(std::move(task));
  }
  if (flags.make_needles.empty()) {
    return tasks;
  }
  HEADROOM_ASSIGN_OR_RETURN(const auto names, SplitList(flags.make_needles, "--make-needles"));
  if (flags.haystack.empty()) {
    return InvalidArgument("--make-needles: wanted --haystack FILE, the text to hide them in");
  }
  HEADROOM_ASSIGN_OR_RETURN(const std::string haystack,
                            profiler::ReadInput(flags.haystack, "--haystack"));
  for (const std::string& name : names) {
    if (name != "1hop" && name != "2hop" && name != "text") {
      return InvalidArgument("--make-needles: got {}, wanted 1hop, 2hop or text", name);
    }
    HEADROOM_ASSIGN_OR_RETURN(NeedleTask task, MakeTask(name, haystack, flags, runtime, clock));
    tasks.push_back(std::move(task));
  }
  return tasks;
}

}  // namespace headroom::server
