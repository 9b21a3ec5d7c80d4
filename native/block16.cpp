// Positions inside blocks of 65,536 as 16-bit numbers.
#include "indices.h"

using namespace index_codes;

namespace {

constexpr unsigned BLOCK_BITS = 16;
constexpr int64_t NUMBER_BYTES = 4;  // how many blocks
constexpr int64_t ENTRY_BYTES = 4;   // of the directory: number of the block, elements in it less 1
constexpr int64_t OFFSET_BYTES = 2;

INLINE int64_t blocks_of(int64_t n, const uint32_t* indices) {
    int64_t blocks = n != 0;
    for (int64_t i = 1; i < n; ++i) blocks += indices[i] >> BLOCK_BITS != indices[i - 1] >> BLOCK_BITS;
    return blocks;
}

INLINE int64_t size_of(int64_t n, const uint32_t* indices) {
    return n == 0 ? 0 : NUMBER_BYTES + ENTRY_BYTES * blocks_of(n, indices) + OFFSET_BYTES * n;
}

INLINE int64_t encode(int64_t n, const uint32_t* indices, int64_t numel, int64_t size, uint8_t* out) {
    if (n == 0) return 0;
    if (!valid(n, indices, numel)) return BAD_INDICES;
    const int64_t most_blocks = std::min(n, (numel + 65535) >> BLOCK_BITS);
    if (size < NUMBER_BYTES + ENTRY_BYTES * most_blocks + OFFSET_BYTES * n + STORE_SLACK) return CAPACITY;
    const int64_t blocks = blocks_of(n, indices);
    store<uint32_t>(out, static_cast<uint32_t>(blocks));
    uint8_t *entry = out + NUMBER_BYTES, *offset = entry + ENTRY_BYTES * blocks;
    for (int64_t i = 0; i < n; ++i) store<uint16_t>(offset + OFFSET_BYTES * i, static_cast<uint16_t>(indices[i]));
    const auto close = [&](int64_t first, int64_t last) {
        store<uint16_t>(entry, static_cast<uint16_t>(indices[first] >> BLOCK_BITS));
        store<uint16_t>(entry + 2, static_cast<uint16_t>(last - first - 1));
        entry += ENTRY_BYTES;
    };
    int64_t first = 0;
    for (int64_t i = 1; i < n; ++i) {
        if (UNLIKELY(indices[i] >> BLOCK_BITS != indices[first] >> BLOCK_BITS)) {
            close(first, i);
            first = i;
        }
    }
    close(first, n);
    return offset + OFFSET_BYTES * n - out;
}

INLINE int64_t decode(int64_t n, const uint8_t* payload, int64_t size, int64_t numel, uint32_t* indices) {
    if (n == 0) return size == 0 ? OK : TRAILING;
    if (numel > MOST_ELEMENTS) return BAD_INDICES;
    if (size < NUMBER_BYTES) return HEADER;
    const int64_t blocks = load<uint32_t>(payload);
    if (size < NUMBER_BYTES + ENTRY_BYTES * blocks) return HEADER;
    const uint8_t *entry = payload + NUMBER_BYTES, *offsets = entry + ENTRY_BYTES * blocks;
    if (payload + size < offsets + OFFSET_BYTES * n) return TRUNCATED;
    if (payload + size > offsets + OFFSET_BYTES * n) return TRAILING;
    int64_t done = 0;
    for (int64_t block = 0; block < blocks; ++block, entry += ENTRY_BYTES) {
        const uint32_t number = load<uint16_t>(entry), first = number << BLOCK_BITS;
        const int64_t count = int64_t{load<uint16_t>(entry + 2)} + 1;
        if (done + count > n || (done > 0 && indices[done - 1] >> BLOCK_BITS >= number)) return DIRECTORY;
        const uint8_t* from = offsets + OFFSET_BYTES * done;
        uint32_t* to = indices + done;
        for (int64_t i = 0; i < count; ++i) to[i] = first | load<uint16_t>(from + OFFSET_BYTES * i);
        if (!increasing(count, to)) return ORDER;
        done += count;
    }
    if (done != n) return DIRECTORY;
    return int64_t{indices[n - 1]} < numel ? OK : INDEX;
}

}  // namespace

void install_block16(Tables& tables) {
    install<&Kernels::block16_size, size_of>(tables);
    install<&Kernels::block16_encode, encode>(tables);
    install<&Kernels::block16_decode, decode>(tables);
}
