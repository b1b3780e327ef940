// A profile for people: a table for the terminal, and one page that needs nothing else.
#pragma once

#include <string>

#include "engine/kv/head_map.h"
#include "profiler/profile_run.h"

namespace headroom::profiler {

struct ProfileReport {
  const engine::HeadMap& map;
  const ProfileNotes& notes;
};

// Types by layer, their counts, the strongest probed heads, candidates of the TSP layer, what
// validation measured, warnings. Lines end in a line break.
std::string TableText(const ProfileReport& report);

// The same as a page, with the grid of heads, scores, budgets and curves drawn (inline SVG).
// Well-formed as XML.
std::string HtmlText(const ProfileReport& report);

}  // namespace headroom::profiler
