#include "models/embedded_data.h"

#include <array>

// The assembler includes the files; HEADROOM_EMBED_DIR is set by the build. This works the same
// under GCC and Clang, needs no generated source, and leaves the bytes to no sanitizer.
#define HEADROOM_EMBED(symbol, file)           \
  asm(".pushsection .rodata\n"                 \
      ".balign 64\n"                           \
      ".globl " #symbol "_begin\n" #symbol     \
      "_begin:\n"                              \
      ".incbin \"" HEADROOM_EMBED_DIR "/" file \
      "\"\n"                                   \
      ".globl " #symbol "_end\n" #symbol       \
      "_end:\n"                                \
      ".byte 0\n"                              \
      ".popsection\n");                        \
  extern "C" const uint8_t symbol##_begin[];   \
  extern "C" const uint8_t symbol##_end[]

HEADROOM_EMBED(headroom_needle_1hop_config, "needle-1hop/config.json");
HEADROOM_EMBED(headroom_needle_1hop_weights, "needle-1hop/model.safetensors");
HEADROOM_EMBED(headroom_needle_2hop_config, "needle-2hop/config.json");
HEADROOM_EMBED(headroom_needle_2hop_weights, "needle-2hop/model.safetensors");

namespace headroom::models {
namespace {

std::span<const uint8_t> Bytes(const uint8_t* begin, const uint8_t* end) {
  return {begin, static_cast<size_t>(reinterpret_cast<uintptr_t>(end) -
                                     reinterpret_cast<uintptr_t>(begin))};
}

std::string_view Text(const uint8_t* begin, const uint8_t* end) {
  const std::span<const uint8_t> bytes = Bytes(begin, end);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::span<const EmbeddedModel> EmbeddedModels() {
  static const std::array<EmbeddedModel, 2> models = {{
      {"needle-1hop", Text(headroom_needle_1hop_config_begin, headroom_needle_1hop_config_end),
       Bytes(headroom_needle_1hop_weights_begin, headroom_needle_1hop_weights_end)},
      {"needle-2hop", Text(headroom_needle_2hop_config_begin, headroom_needle_2hop_config_end),
       Bytes(headroom_needle_2hop_weights_begin, headroom_needle_2hop_weights_end)},
  }};
  return models;
}

}  // namespace headroom::models
