#include "profiler/validation_material.h"

#include <algorithm>
#include <utility>

#include "profiler/evaluation/needle_generator.h"

namespace headroom::profiler {
namespace {

// A document is at least so many times as long as its continuation.
constexpr int32_t kShortestDocument = 4;
constexpr int32_t kFewestContinuation = 16;
constexpr int32_t kNumCandidates = 2;  // the code, which the order of dense heads asks for
constexpr int32_t kSlack = 48;         // a chat template, and an answer
// Lengths that needles are tried at where text is too short for the wanted one.
constexpr int32_t kLengths[] = {1000, 500, 250};
// Draws apart from those of probes.
constexpr uint64_t kHeldOutSeed = 1'000'003;
constexpr uint64_t kOrderSeed = 2'000'003;

std::string JoinText(const std::vector<ProfilePrompt>& prompts, const TextFormat& format) {
  std::string text;
  for (const ProfilePrompt& prompt : prompts) {
    text += TextOfTokens(format.tokenizer, prompt.ids);
    text += '\n';
  }
  return text;
}

std::vector<NeedlePrompt> MakeNeedles(const std::vector<ProfilePrompt>& prompts,
                                      const TextFormat& format, int32_t count, uint64_t seed,
                                      const MaterialOptions& options) {
  const std::string text = JoinText(prompts, format);
  const int32_t longest = std::min(options.needle_length, options.max_context - kSlack);
  std::string failure = "the context is too short";
  for (const int32_t wanted : kLengths) {
    const int32_t length = std::min(wanted, longest);
    const auto made =
        MakeTextNeedles(format, text, {.length = length, .count = count, .seed = seed});
    if (!made.ok()) {
      failure = StatusMessage(made.status());
      continue;
    }
    std::vector<NeedlePrompt> needles;
    for (const TextNeedle& needle : *made) {
      auto encoded = EncodeNeedle(format, needle, kNumCandidates, seed);
      if (!encoded.ok()) {
        failure = StatusMessage(encoded.status());
        break;
      }
      needles.push_back(std::move(encoded).value());
    }
    if (needles.size() == made->size()) {
      return needles;
    }
  }
  if (options.warnings != nullptr) {
    options.warnings->push_back(fmt::format("no needles to validate with: {}", failure));
  }
  return {};
}

// The first `count` of them that fit.
std::vector<NeedlePrompt> Fitting(const std::vector<NeedlePrompt>& needles, int32_t count,
                                  int32_t max_context) {
  std::vector<NeedlePrompt> fitting;
  for (const NeedlePrompt& needle : needles) {
    if (fitting.size() < static_cast<size_t>(count) &&
        needle.ids.size() + needle.answer.size() <= static_cast<size_t>(max_context)) {
      fitting.push_back(needle);
    }
  }
  return fitting;
}

// Sets documents, and how much of them is predicted.
void AddDocuments(const std::vector<ProfilePrompt>& prompts, const MaterialOptions& options,
                  ValidationMaterial* material) {
  size_t longest = 0;
  for (const ProfilePrompt& prompt : prompts) {
    longest = std::max(longest, prompt.ids.size());
  }
  const int32_t continuation = std::min<int32_t>(options.continuation_tokens,
                                                 static_cast<int32_t>(longest) / kShortestDocument);
  material->fidelity.continuation_tokens = continuation;
  if (continuation < kFewestContinuation) {
    return;
  }
  for (const ProfilePrompt& prompt : prompts) {
    if (material->documents.size() < static_cast<size_t>(options.num_documents) &&
        prompt.ids.size() >= static_cast<size_t>(continuation) * kShortestDocument) {
      Document document = {.id = prompt.id, .source = prompt.domain, .ids = prompt.ids};
      document.ids.resize(std::min(document.ids.size(), static_cast<size_t>(options.max_context)));
      material->documents.push_back(std::move(document));
    }
  }
}

}  // namespace

ValidationMaterial MakeValidationMaterial(const HeldOut& held_out, const TextFormat* format,
                                          const MaterialOptions& options) {
  ValidationMaterial material;
  AddDocuments(held_out.prompts, options, &material);
  NeedleTask task;
  task.name = "held out";
  task.prompts = Fitting(held_out.needles, options.num_needles, options.max_context);
  if (task.prompts.empty() && format != nullptr) {
    task.prompts = MakeNeedles(held_out.prompts, *format, options.num_needles,
                               options.seed + kHeldOutSeed, options);
  }
  for (NeedlePrompt& prompt : task.prompts) {
    prompt.candidates.clear();  // answers count, not ranks
    prompt.lead.clear();
  }
  if (!task.prompts.empty()) {
    material.tasks.push_back(std::move(task));
  }
  if (format != nullptr) {
    material.needles.tokenizer = &format->tokenizer;
  }
  return material;
}

std::vector<NeedlePrompt> MakeOrderNeedles(const ProfileInput& input, const TextFormat* format,
                                           const MaterialOptions& options) {
  std::vector<NeedlePrompt> needles =
      Fitting(input.needles, options.num_needles, options.max_context);
  if (needles.empty() && format != nullptr) {
    needles = MakeNeedles(input.prompts, *format, options.num_needles, options.seed + kOrderSeed,
                          options);
  }
  return needles;
}

}  // namespace headroom::profiler
