// Whether a page is well-formed, without an XML parser.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::profiler {

// Whether every = outside quotes has a quoted value behind it, and quotes are in pairs.
inline bool HasQuotedAttributes(std::string_view tag) {
  bool in_value = false;
  for (size_t i = 0; i < tag.size(); ++i) {
    if (tag[i] == '"') {
      if (!in_value && (i == 0 || tag[i - 1] != '=')) {
        return false;
      }
      in_value = !in_value;
    } else if (tag[i] == '<' || (!in_value && tag[i] == '=' && tag.substr(i + 1, 1) != "\"")) {
      return false;
    }
  }
  return !in_value;
}

// The first fault of XML-like markup, or nothing. Knows elements, attributes and entities.
inline std::string MarkupFault(std::string_view text) {
  std::vector<std::string> open;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '&') {
      const size_t end = text.find(';', i);
      if (end == std::string_view::npos || end - i > 6) {
        return "a bare & at " + std::string(text.substr(i, 20));
      }
    }
    if (text[i] == '>') {
      return "a bare > at " + std::string(text.substr(i, 20));
    }
    if (text[i] != '<') {
      continue;
    }
    const size_t end = text.find('>', i);
    if (end == std::string_view::npos) {
      return "an open tag at the end";
    }
    const std::string tag(text.substr(i + 1, end - i - 1));
    i = end;
    if (tag.starts_with("!DOCTYPE")) {
      continue;
    }
    if (!HasQuotedAttributes(tag)) {
      return "a malformed tag " + tag;
    }
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag.starts_with("/")) {
      if (open.empty() || "/" + open.back() != tag) {
        return tag + " closes nothing";
      }
      open.pop_back();
    } else if (!tag.ends_with("/")) {
      open.push_back(name);
    }
  }
  return open.empty() ? "" : open.back() + " is not closed";
}

}  // namespace headroom::profiler
