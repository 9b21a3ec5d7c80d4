// Binary interpolative code of indices (Moffat and Stuiver, Information Retrieval 2000): each between two that are known.
#include "indices.h"

using namespace index_codes;

namespace {

// Calls visit(i, left, right) level by level for i from 1 to n: where i is an odd multiple of a level's stride, its
// neighbours left = i - stride and right = i + stride (n + 1 where that is beyond n) are coded before.
template <class Visit>
INLINE void each_level(int64_t n, Visit visit) {
    int64_t stride = 1;
    while (stride <= n / 2) stride *= 2;
    for (; stride > 0; stride /= 2) {
        for (int64_t i = stride; i <= n; i += 2 * stride) visit(i, i - stride, std::min(i + stride, n + 1));
    }
}

// A number below `range` in centred truncated binary: the `cut` numbers in the middle take `width` bits, others one more.
struct Choice {
    uint64_t range, cut, before;  // `before` of the longer ones lie below the middle
    unsigned width;

    INLINE explicit Choice(uint64_t possible) : range(possible) {
        width = 63 - static_cast<unsigned>(__builtin_clzll(possible));
        cut = (uint64_t{2} << width) - possible;
        before = (possible - cut) / 2;
    }

    // With the middle moved to the beginning.
    INLINE uint64_t turned(uint64_t number) const { return number - before + (number < before ? range : 0); }
    INLINE uint64_t turned_back(uint64_t number) const {
        const uint64_t back = number + before;
        return back - (back >= range ? range : 0);
    }
};

// What lies between two neighbours: the least possible index of i, and how many are possible.
struct Place {
    uint64_t least, possible;

    INLINE Place(uint64_t above, uint64_t end, int64_t i, int64_t left, int64_t right)
        : least(above + static_cast<uint64_t>(i - left - 1)),
          possible(end - above - static_cast<uint64_t>(right - left - 2)) {}
};

// Indices are counted from 1 here; 0 stands for what is before the first, n + 1 for numel.
INLINE Place place_of(const uint32_t* indices, int64_t n, int64_t numel, int64_t i, int64_t left, int64_t right) {
    const uint64_t above = left == 0 ? 0 : uint64_t{indices[left - 1]} + 1;
    const uint64_t end = right > n ? static_cast<uint64_t>(numel) : indices[right - 1];
    return Place(above, end, i, left, right);
}

INLINE int64_t most_bits(int64_t n, int64_t numel) {
    int64_t bits = 0;
    for (int64_t stride = 1; stride <= n; stride *= 2) {
        const int64_t count = (n + stride) / (2 * stride);
        bits += count * (65 - __builtin_clzll(static_cast<uint64_t>(numel / count)));
    }
    return bits;
}

INLINE int64_t encode(int64_t n, const uint32_t* indices, int64_t numel, int64_t size, uint8_t* out) {
    if (n == 0) return 0;
    if (!valid(n, indices, numel)) return BAD_INDICES;
    if (size < most_bits(n, numel) / 8 + STORE_SLACK) return CAPACITY;
    BitWriter writer{out};
    each_level(n, [&](int64_t i, int64_t left, int64_t right) __attribute__((always_inline)) {
        const Place place = place_of(indices, n, numel, i, left, right);
        const Choice choice(place.possible);
        const uint64_t number = choice.turned(indices[i - 1] - place.least);
        const uint64_t longer = number >= choice.cut, shifted = number + choice.cut;
        // The correction is masked, not branched on: which are longer is random.
        const uint64_t rotated = shifted >> 1 | (shifted & 1) << choice.width;
        writer.put(number + ((rotated - number) & (0 - longer)), choice.width + static_cast<unsigned>(longer));
    });
    writer.align();
    return writer.next - out;
}

INLINE int64_t size_of(int64_t n, const uint32_t* indices, int64_t numel) {
    if (n == 0) return 0;
    if (numel > MOST_ELEMENTS || n > numel || int64_t{indices[n - 1]} >= numel || !increasing(n, indices)) return BAD_INDICES;
    int64_t bits = 0;
    each_level(n, [&](int64_t i, int64_t left, int64_t right) __attribute__((always_inline)) {
        const Place place = place_of(indices, n, numel, i, left, right);
        const Choice choice(place.possible);
        bits += choice.width + (choice.turned(indices[i - 1] - place.least) >= choice.cut);
    });
    return bytes_of(bits);
}

// Any bits stand for increasing indices below numel, so that only their number is left to check.
INLINE int64_t decode(int64_t n, const uint8_t* payload, int64_t size, int64_t numel, uint32_t* indices) {
    if (n == 0) return size == 0 ? OK : TRAILING;
    if (numel > MOST_ELEMENTS) return BAD_INDICES;
    if (n > numel) return INDEX;
    const uint8_t* end = payload + size;
    const int64_t bits_there = 8 * size;
    int64_t position = 0;
    each_level(n, [&](int64_t i, int64_t left, int64_t right) __attribute__((always_inline)) {
        const Place place = place_of(indices, n, numel, i, left, right);
        const Choice choice(place.possible);
        const uint64_t bits =
            LIKELY(position < bits_there) ? load_word(payload + (position >> 3), end) >> (position & 7) : 0;
        const uint64_t head = bits & ((uint64_t{1} << choice.width) - 1), tail = bits >> choice.width & 1;
        const uint64_t longer = head >= choice.cut;
        const uint64_t number = head + ((head + tail - choice.cut) & (0 - longer));
        position += static_cast<int64_t>(choice.width + longer);
        indices[i - 1] = static_cast<uint32_t>(place.least + choice.turned_back(number));
    });
    if (position > bits_there) return TRUNCATED;
    if (bits_there - position >= 8) return TRAILING;
    const int64_t used = position & 7;
    return used && payload[position >> 3] >> used ? PADDING : OK;
}

}  // namespace

void install_interpolative(Tables& tables) {
    install<&Kernels::interpolative_size, size_of>(tables);
    install<&Kernels::interpolative_encode, encode>(tables);
    install<&Kernels::interpolative_decode, decode>(tables);
}
