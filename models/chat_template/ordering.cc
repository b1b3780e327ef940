#include "models/chat_template/ordering.h"

#include <algorithm>
#include <numeric>

#include "models/chat_template/operators.h"

namespace headroom::models::jinja {

// A merge sort of our own: comparing may fail or (NaN) be no order at all, which std::sort does
// not allow.
StatusOr<std::vector<size_t>> SortedOrder(Budget& budget, const ValueList& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<size_t> merged(keys.size());
  for (size_t width = 1; width < keys.size(); width *= 2) {
    for (size_t begin = 0; begin < keys.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, keys.size());
      const size_t end = std::min(begin + 2 * width, keys.size());
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          const Value& a = keys[order[left]];
          const Value& b = keys[order[right]];
          HEADROOM_ASSIGN_OR_RETURN(take_right, reverse ? Less(budget, a, b) : Less(budget, b, a));
        }
        merged[out] = order[take_right ? right++ : left++];
      }
    }
    std::swap(order, merged);
  }
  return order;
}

}  // namespace headroom::models::jinja
