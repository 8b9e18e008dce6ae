// microsoft/ALEX behind three C functions, for benchmarks/learned_index.py.
#include <cstdint>
#include <utility>
#include <vector>

#include "core/alex.h"

using Index = alex::Alex<int64_t, int64_t>;

extern "C" {
Index* load(const int64_t* keys, int64_t count) {
  std::vector<std::pair<int64_t, int64_t>> pairs(count);
  for (int64_t number = 0; number < count; number++) pairs[number] = {keys[number], number};
  auto* index = new Index();
  index->bulk_load(pairs.data(), static_cast<int>(count));
  return index;
}

void get_many(Index* index, const int64_t* keys, int64_t count, int64_t* found) {
  for (int64_t number = 0; number < count; number++) {
    const int64_t* value = index->get_payload(keys[number]);
    found[number] = value ? *value : -1;
  }
}

void drop(Index* index) { delete index; }
}
