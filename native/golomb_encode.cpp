// Golomb code of the gaps between indices: encoder, and the size that it would write.
#include "golomb.h"

using namespace golomb;
using namespace index_codes;

namespace {

constexpr int64_t GROUP = 16;                   // gaps that are coded together
constexpr uint32_t MOST_QUICK = 0x7FFFFFFF;     // gaps that convert as signed numbers
static_assert(BLOCK % GROUP == 0, "a group lies in one block");

INLINE int64_t modulus_of(int64_t n, int64_t numel) {
    return std::max<int64_t>(1, ((numel - n) * 45426 / 65536 + n / 2) / n);
}

// Quotients of gaps up to MOST_QUICK. Half a unit more keeps multiples of the divisor on the right side of the rounding.
struct Divider {
    double reciprocal;

    INLINE explicit Divider(uint64_t divisor) : reciprocal(1.0 / static_cast<double>(divisor)) {}

    INLINE uint32_t operator()(uint32_t gap) const {
        return static_cast<uint32_t>(static_cast<int32_t>((static_cast<int32_t>(gap) + 0.5) * reciprocal));
    }
};

INLINE void put_gap(BitWriter& writer, uint64_t gap, const Code& code) {
    uint64_t quotient = gap / code.modulus;
    const uint64_t remainder = gap - quotient * code.modulus;
    const uint64_t longer = remainder >= code.cut;
    const uint64_t shifted = remainder + code.cut;
    const uint64_t binary = longer ? shifted >> 1 | (shifted & 1) << code.width : remainder;
    for (; quotient >= WINDOW; quotient -= WINDOW) writer.put(0, WINDOW);
    writer.put(uint64_t{1} << quotient, static_cast<unsigned>(quotient) + 1);
    writer.put(binary, code.width + static_cast<unsigned>(longer));
}

// The codes of one group of gaps, each as bits and their number.
struct Group {
    uint64_t bits[GROUP];
    uint32_t lengths[GROUP];
    uint32_t longest;  // above WINDOW: bits and lengths are void
};

// Codes the gaps before indices[0] to indices[GROUP - 1]; indices[-1] exists.
INLINE void code_group(const uint32_t* indices, const Code& code, const Divider& divide, uint32_t most_gap, Group& group) {
    uint32_t largest = 0;
    const uint32_t modulus = static_cast<uint32_t>(code.modulus), cut = static_cast<uint32_t>(code.cut);
    for (int64_t i = 0; i < GROUP; ++i) {
        const uint32_t gap = indices[i] - indices[i - 1] - 1;
        largest = std::max(largest, gap);
        const uint32_t quotient = divide(gap), remainder = gap - quotient * modulus;
        const uint32_t longer = remainder >= cut, shifted = remainder + cut;
        // The correction is masked, not branched on: which remainders are longer is random.
        const uint32_t rotated = shifted >> 1 | (shifted & 1) << code.width;
        const uint32_t binary = remainder + ((rotated - remainder) & (0 - longer));
        group.bits[i] = (uint64_t{1} | uint64_t{binary} << 1) << (quotient & 63);
        group.lengths[i] = quotient + 1 + code.width + longer;
    }
    group.longest = largest > most_gap ? WINDOW + 1 : 0;
}

// Joins neighbours, so that half as many puts are needed; `longest` says whether all of them still fit in one.
template <int Count>
INLINE void join(const uint64_t* bits, const uint32_t* lengths, uint64_t* joined, uint32_t* sums, uint32_t& longest) {
    longest = 0;
    for (int i = 0; i < Count; ++i) {
        joined[i] = bits[2 * i] | bits[2 * i + 1] << (lengths[2 * i] & 63);
        sums[i] = lengths[2 * i] + lengths[2 * i + 1];
        longest = std::max(longest, sums[i]);
    }
}

template <int Count>
INLINE void put_all(BitWriter& writer, const uint64_t* bits, const uint32_t* lengths) {
    for (int i = 0; i < Count; ++i) writer.put(bits[i], lengths[i]);
}

INLINE void put_group(BitWriter& writer, const Group& group) {
    uint64_t pairs[GROUP / 2], fours[GROUP / 4];
    uint32_t pair_lengths[GROUP / 2], four_lengths[GROUP / 4], longest_pair, longest_four;
    join<GROUP / 2>(group.bits, group.lengths, pairs, pair_lengths, longest_pair);
    join<GROUP / 4>(pairs, pair_lengths, fours, four_lengths, longest_four);
    if (LIKELY(longest_four <= WINDOW)) {
        put_all<GROUP / 4>(writer, fours, four_lengths);
    } else if (LIKELY(longest_pair <= WINDOW)) {
        put_all<GROUP / 2>(writer, pairs, pair_lengths);
    } else {
        put_all<GROUP>(writer, group.bits, group.lengths);
    }
}

// The largest gap whose code fits in a window, as far as quotients are computed.
INLINE uint32_t most_gap_of(const Code& code) {
    const uint64_t most_quotient = WINDOW - 2 - code.width;
    return static_cast<uint32_t>(std::min<uint64_t>(MOST_QUICK, code.modulus * most_quotient));
}

INLINE int64_t encode(int64_t n, const uint32_t* indices, int64_t numel, int64_t size, uint8_t* out) {
    if (n == 0) return 0;
    if (!valid(n, indices, numel)) return BAD_INDICES;
    const int64_t modulus = modulus_of(n, numel);
    const Code code(static_cast<uint64_t>(modulus));
    const Divider divide(code.modulus);
    const uint32_t most_gap = most_gap_of(code);
    const int64_t blocks = blocks_of(n);
    const int64_t directory_bytes = ENTRY_BYTES * (blocks - 1);
    const int64_t most_bits = n * (code.width + 2) + (numel - n) / modulus;
    if (size < MODULUS_BYTES + directory_bytes + most_bits / 8 + blocks + STORE_SLACK) return CAPACITY;

    store<uint32_t>(out, static_cast<uint32_t>(modulus));
    uint8_t* entry = out + MODULUS_BYTES;
    BitWriter writer{entry + directory_bytes};
    for (int64_t first = 0; first < n; first += BLOCK) {
        const uint8_t* start = writer.next;
        const int64_t last = std::min(n, first + BLOCK);
        int64_t i = first;
        if (i == 0) put_gap(writer, indices[i++], code);  // groups need a previous index
        const auto singly = [&](int64_t end) {
            for (; i < end; ++i) put_gap(writer, uint64_t{indices[i]} - indices[i - 1] - 1, code);
        };
        while (last - i >= GROUP) {
            Group group;
            code_group(indices + i, code, divide, most_gap, group);
            if (LIKELY(group.longest <= WINDOW)) {
                put_group(writer, group);
                i += GROUP;
            } else {
                singly(i + GROUP);
            }
        }
        singly(last);
        writer.align();
        if (last == n) break;
        store<uint32_t>(entry, static_cast<uint32_t>(writer.next - start));
        store<uint32_t>(entry + 4, indices[last - 1]);
        entry += ENTRY_BYTES;
    }
    return writer.next - out;
}

// What a gap's code takes beyond the bits that all have.
INLINE uint64_t more_bits(uint64_t gap, const Code& code) {
    return gap / code.modulus + (gap % code.modulus >= code.cut);
}

// The same for the gaps before indices[0] to indices[n - 1], in one block; indices[-1] exists.
INLINE uint64_t more_bits(int64_t n, const uint32_t* indices, const Code& code, const Divider& divide) {
    const uint32_t modulus = static_cast<uint32_t>(code.modulus), cut = static_cast<uint32_t>(code.cut);
    uint32_t bits = 0, largest = 0;
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t gap = indices[i] - indices[i - 1] - 1, quotient = divide(gap);
        bits += quotient + (gap - quotient * modulus >= cut);
        largest |= gap;
    }
    if (LIKELY(largest <= MOST_QUICK)) return bits;
    uint64_t exact = 0;
    for (int64_t i = 0; i < n; ++i) exact += more_bits(indices[i] - indices[i - 1] - 1, code);
    return exact;
}

INLINE int64_t size_of(int64_t n, const uint32_t* indices, int64_t numel) {
    if (n == 0) return 0;
    if (numel > MOST_ELEMENTS || n > numel) return BAD_INDICES;
    const Code code(static_cast<uint64_t>(modulus_of(n, numel)));
    const Divider divide(code.modulus);
    int64_t size = MODULUS_BYTES + ENTRY_BYTES * (blocks_of(n) - 1);
    for (int64_t first = 0; first < n; first += BLOCK) {
        const int64_t last = std::min(n, first + BLOCK), begin = std::max<int64_t>(first, 1);
        uint64_t bits = static_cast<uint64_t>(last - first) * (code.width + 1);
        if (first == 0) bits += more_bits(indices[0], code);
        bits += more_bits(last - begin, indices + begin, code, divide);
        size += bytes_of(static_cast<int64_t>(bits));
    }
    return size;
}

}  // namespace

void install_golomb_encode(Tables& tables) {
    install<&Kernels::golomb_encode, encode>(tables);
    tables.avx512.golomb_encode = tables.avx2.golomb_encode;
    install<&Kernels::golomb_size, size_of>(tables);
}
