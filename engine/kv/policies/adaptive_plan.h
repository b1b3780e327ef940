// The arithmetic of `adaptive`: how many entries each KV head gets, in exact integers.
//
// Everything here counts entries beside the mandatory ones. A head has room for so many more; what
// is handed out is always a prefix of an order that does not depend on the pool, so that no head
// and no layer ever gets less from a larger pool. Scores play no part: they choose which slots a
// head's own entries are, and which heads of a layer win its contested ones.
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::engine {

// The part of a head in one split. Heads are listed by layer, then KV head.
struct AdaptiveHead {
  int32_t layer = 0;
  bool elastic = false;  // heavy or dense; else it has quotas alone
  bool dense = false;    // elastic
  int64_t room = 0;      // entries that the mandatory ones leave of its slots
  int64_t lead = 0;      // of the prompt's beginning; floor and quota fit into the rest of the room
  int64_t content = 0;   // dense: what it holds before punctuation, at most its room
  int64_t floor = 0;     // elastic: what it has before heads compete
  int64_t newest = 0;    // elastic: of the floor those that are the newest, not the best
  int64_t quota = 0;     // fixed: windows and punctuation
  int64_t fill_order = 0;  // dense heads are filled in its order, the lowest first
  int64_t demand = 0;      // elastic: entries that its type needs, where layers share by demand
};

// The dense share that was found for a pool of so many entries.
struct AdaptivePoint {
  int64_t pool = 0;
  int64_t dense_share_ppm = 0;
};

struct AdaptiveInput {
  std::vector<AdaptiveHead> heads;
  int64_t pool = 0;  // entries beside the mandatory ones; negative where those alone are more
  int64_t local_share_ppm = 0;  // the most that quotas take of the pool; at most half
  // By pool ascending, at least one. The dense part is exactly the share at a point; between two
  // points it goes from one to the other in a straight line, cut so that neither it nor the rest
  // ever shrinks. Beyond the ends the nearest share holds.
  std::vector<AdaptivePoint> points;
  // A pool, of this split as well, whose dense part goes to the content of dense heads alone, one
  // after the other; 0: dense heads are filled whole from the first.
  int64_t content_pool = 0;
  bool layers_by_demand = false;  // contested entries go to layers by demand, else by elastic heads
};

struct AdaptiveSplit {
  std::vector<int64_t> quota;  // [heads], of AdaptiveHead::quota
  std::vector<int64_t> own;    // [heads], the head's alone, its lead among them
  std::vector<int64_t> lead;   // [heads], of AdaptiveHead::lead
  // [heads], not 0: of its own entries content comes before punctuation. The same at every pool.
  std::vector<uint8_t> content_first;
  std::vector<int64_t> contested;  // [last layer + 1], to the best pairs of head and slot
  bool overran = false;            // the mandatory entries alone were more than the pool
};

// The sum of all that is given is the pool, at least nothing and capped by the rooms.
//  0. Leads, head by head in turn: a third of what the pool has beyond three times their sum, so
// that they are whole in a pool of six times their sum.
//  1. Quotas, at most local_share of the pool, by relative rank. 2. Of the rest, the dense share
// fills dense heads, one after the other: first with content alone, up to the dense part of
// content_pool, then those and the others whole. 3. Elastic heads that have less than their floor
// get up to it in turn. 4. What is left is contested, layer by layer, by all elastic heads. What
// elastic heads cannot hold completes quotas, then goes to fixed heads in turn.
// Floors come behind the dense share: where a pool is small, the floors of all heads would leave
// nothing to fill the few heads with that fetch from far back; content comes first for the same
// reason (docs/adr/0004, 0006).
AdaptiveSplit SplitPool(const AdaptiveInput& input);

// One of several that share a list: its item k (from 1 to `limit`) stands at k / weight.
struct Claim {
  int64_t weight = 1;  // >= 1
  int64_t limit = 0;
};
// How many of the first `total` items are whose; the earlier claim first among equals. Counts never
// shrink as `total` grows. `total` is at most the sum of limits; limits and weights below 2^31.
std::vector<int64_t> TakeInOrder(const std::vector<Claim>& claims, int64_t total);

}  // namespace headroom::engine
