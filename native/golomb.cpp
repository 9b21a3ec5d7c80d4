// Golomb code of the gaps between indices, in byte-aligned blocks that are decoded several at a time.
#include <algorithm>

#include "common.h"

namespace {

constexpr int64_t BLOCK = 4096;
constexpr int64_t MODULUS_BYTES = 4;
constexpr int64_t ENTRY_BYTES = 8;   // of the directory
constexpr int64_t STORE_SLACK = 16;  // of golomb_bound, for 8-byte stores past the end
constexpr uint64_t WINDOW = 56;      // bits that an 8-byte load at any bit position holds
constexpr int64_t MOST_ELEMENTS = 0xFFFFFFFF;

// A Golomb parameter with what follows from it (truncated binary remainders).
struct Code {
    uint64_t modulus;
    uint64_t cut;    // remainders below it take `width` bits, the others one more
    uint64_t mask;   // of `width` bits
    unsigned width;

    INLINE explicit Code(uint64_t m) : modulus(m) {
        width = 63 - static_cast<unsigned>(__builtin_clzll(m));
        mask = (uint64_t{1} << width) - 1;
        cut = (uint64_t{2} << width) - m;
    }
};

INLINE int64_t blocks_of(int64_t n) { return (n + BLOCK - 1) / BLOCK; }

// Division of 32-bit numbers by multiplication with a 64-bit reciprocal, exact for all of them.
struct Divider {
    uint64_t reciprocal;

    INLINE explicit Divider(uint64_t divisor) : reciprocal(divisor == 1 ? 0 : ~uint64_t{0} / divisor + 1) {}

    INLINE uint64_t operator()(uint64_t number) const {
        if (reciprocal == 0) return number;
        return static_cast<uint64_t>(static_cast<unsigned __int128>(reciprocal) * number >> 64);
    }
};

struct Writer {
    uint8_t* next;
    uint64_t pending = 0;
    unsigned filled = 0;  // bits pending, below 8 between calls

    INLINE void put(uint64_t bits, unsigned length) {  // length <= WINDOW
        pending |= bits << filled;
        filled += length;
        store<uint64_t>(next, pending);
        next += filled >> 3;
        pending >>= filled & ~7u;
        filled &= 7;
    }

    INLINE void align() {
        next += filled != 0;
        pending = filled = 0;
    }
};

INLINE void put_gap(Writer& writer, uint64_t gap, const Code& code, const Divider& divide) {
    uint64_t quotient = divide(gap);
    const uint64_t remainder = gap - quotient * code.modulus;
    const uint64_t longer = remainder >= code.cut;
    const uint64_t shifted = remainder + code.cut;
    const uint64_t binary = longer ? shifted >> 1 | (shifted & 1) << code.width : remainder;
    const unsigned width = code.width + static_cast<unsigned>(longer);
    if (LIKELY(quotient + 1 + width <= WINDOW)) {
        writer.put((uint64_t{1} | binary << 1) << quotient, static_cast<unsigned>(quotient) + 1 + width);
        return;
    }
    for (; quotient >= WINDOW; quotient -= WINDOW) writer.put(0, WINDOW);
    writer.put(uint64_t{1} << quotient, static_cast<unsigned>(quotient) + 1);
    writer.put(binary, width);
}

INLINE int64_t encode(int64_t n, const uint32_t* indices, int64_t numel, int64_t size, uint8_t* out) {
    if (n == 0) return 0;
    if (numel > MOST_ELEMENTS || n > numel) return BAD_INDICES;
    const int64_t modulus = std::max<int64_t>(1, ((numel - n) * 45426 / 65536 + n / 2) / n);
    const Code code(static_cast<uint64_t>(modulus));
    const Divider divide(code.modulus);
    const int64_t blocks = blocks_of(n);
    const int64_t directory_bytes = ENTRY_BYTES * (blocks - 1);
    const int64_t most_bits = n * (code.width + 2) + (numel - n) / modulus;
    if (size < MODULUS_BYTES + directory_bytes + most_bits / 8 + blocks + STORE_SLACK) return CAPACITY;

    store<uint32_t>(out, static_cast<uint32_t>(modulus));
    uint8_t* entry = out + MODULUS_BYTES;
    Writer writer{entry + directory_bytes};
    uint64_t expected = 0;  // one past the previous index
    for (int64_t first = 0; first < n; first += BLOCK) {
        const uint8_t* start = writer.next;
        const int64_t last = std::min(n, first + BLOCK);
        for (int64_t i = first; i < last; ++i) {
            const uint64_t index = indices[i];
            if (UNLIKELY(index < expected || index >= static_cast<uint64_t>(numel))) return BAD_INDICES;
            put_gap(writer, index - expected, code, divide);
            expected = index + 1;
        }
        writer.align();
        if (last == n) break;
        store<uint32_t>(entry, static_cast<uint32_t>(writer.next - start));
        store<uint32_t>(entry + 4, static_cast<uint32_t>(expected - 1));
        entry += ENTRY_BYTES;
    }
    return writer.next - out;
}

// What all blocks of a payload share.
struct Stream {
    const uint8_t* payload;
    int64_t fast_bits;  // an 8-byte load at a bit position below this stays inside the payload
    uint64_t most_quotient;
    Code code;
};

// One block being decoded: bit positions count from the start of the payload.
struct Lane {
    int64_t position;
    int64_t end;
    uint64_t expected;  // one past the previous index
    uint64_t promised;  // what `expected` must be after the block, as the directory says; 0 for the last block
};

// The bits from position on, zeros from the end of the block on.
inline uint64_t careful_window(const uint8_t* payload, int64_t position, int64_t end) {
    uint64_t bits = 0;
    for (int64_t byte = position >> 3, shift = 0; byte < end >> 3 && shift < 64; ++byte, shift += 8) {
        bits |= static_cast<uint64_t>(payload[byte]) << shift;
    }
    return bits >> (position & 7);
}

// The next index where bits run out or a quotient is long. Returns OK, TRUNCATED or INDEX.
__attribute__((noinline)) int64_t next_careful(const Stream& stream, Lane& lane, uint64_t& index) {
    uint64_t quotient = 0, bits;
    while ((bits = careful_window(stream.payload, lane.position, lane.end)) == 0) {
        lane.position += WINDOW;
        quotient += WINDOW;
        if (lane.position >= lane.end) return TRUNCATED;
    }
    const int zeros = __builtin_ctzll(bits);
    quotient += static_cast<uint64_t>(zeros);
    // Also bounds the product below, so that hostile zeros cannot overflow it.
    if (quotient > stream.most_quotient) return INDEX;
    lane.position += zeros + 1;
    bits = careful_window(stream.payload, lane.position, lane.end);
    const uint64_t head = bits & stream.code.mask;
    const uint64_t longer = head >= stream.code.cut;
    const uint64_t tail = bits >> stream.code.width & 1;
    lane.position += static_cast<int64_t>(stream.code.width + longer);
    if (lane.position > lane.end) return TRUNCATED;
    index = lane.expected + quotient * stream.code.modulus + (longer ? 2 * head + tail - stream.code.cut : head);
    lane.expected = index + 1;
    return OK;
}

// The next index of a block. Overrunning the block or numel is left to `finish`: neither can touch foreign memory,
// since loads are bounded by the payload, and a block's indices, below 2^38 apart, cannot wrap.
INLINE int64_t next(const Stream& stream, Lane& lane, uint32_t* out) {
    uint64_t index = 0;
    if (LIKELY(lane.position < stream.fast_bits)) {
        const uint64_t bits = load<uint64_t>(stream.payload + (lane.position >> 3)) >> (lane.position & 7);
        const uint64_t zeros = static_cast<uint64_t>(__builtin_ctzll(bits | uint64_t{1} << 63));
        if (LIKELY(zeros + 2 + stream.code.width <= WINDOW)) {
            const uint64_t binary = bits >> zeros >> 1;
            const uint64_t head = binary & stream.code.mask;
            const uint64_t longer = head >= stream.code.cut;
            const uint64_t tail = binary >> stream.code.width & 1;
            // The correction is masked, not branched on: which remainders are longer is random.
            const uint64_t remainder = head + ((head + tail - stream.code.cut) & (0 - longer));
            index = lane.expected + zeros * stream.code.modulus + remainder;
            lane.expected = index + 1;
            lane.position += static_cast<int64_t>(zeros + 1 + stream.code.width + longer);
            *out = static_cast<uint32_t>(index);
            return OK;
        }
    }
    const int64_t status = next_careful(stream, lane, index);
    *out = static_cast<uint32_t>(index);
    return status;
}

INLINE int64_t finish(const Stream& stream, const Lane& lane, uint64_t numel) {
    if (lane.position > lane.end) return TRUNCATED;
    if (lane.expected > numel) return INDEX;
    if (lane.promised != 0 && lane.expected != lane.promised) return DIRECTORY;
    if (lane.end - lane.position >= 8) return TRAILING;
    const int64_t used = lane.position & 7;
    return used && stream.payload[lane.position >> 3] >> used ? PADDING : OK;
}

template <int Count>
INLINE int64_t decode_blocks(const Stream& stream, Lane* lanes, int64_t elements, uint64_t numel, uint32_t* out) {
    for (int64_t i = 0; i < elements; ++i) {
        for (int lane = 0; lane < Count; ++lane) {
            const int64_t status = next(stream, lanes[lane], out + lane * BLOCK + i);
            if (UNLIKELY(status != OK)) return status;
        }
    }
    for (int lane = 0; lane < Count; ++lane) {
        const int64_t status = finish(stream, lanes[lane], numel);
        if (status != OK) return status;
    }
    return OK;
}

// Walks the directory and hands out each block's place and first gap's origin, which `finish` checks afterwards.
struct Directory {
    const uint8_t* entry;
    const uint8_t* entries_end;
    int64_t position;  // bits, where the next block begins
    int64_t end;       // bits, end of the payload
    uint64_t expected = 0;

    INLINE bool open(Lane& lane) {
        lane = Lane{position, end, expected, 0};
        if (entry == entries_end) return true;
        lane.end = position + 8 * static_cast<int64_t>(load<uint32_t>(entry));
        lane.promised = uint64_t{load<uint32_t>(entry + 4)} + 1;
        entry += ENTRY_BYTES;
        position = lane.end;
        expected = lane.promised;
        return lane.end <= end;
    }
};

INLINE int64_t decode(int64_t n, const uint8_t* payload, int64_t size, int64_t numel, uint32_t* indices) {
    if (n == 0) return size == 0 ? OK : TRAILING;
    if (numel > MOST_ELEMENTS) return BAD_INDICES;
    const int64_t directory_bytes = ENTRY_BYTES * (blocks_of(n) - 1);
    if (size < MODULUS_BYTES + directory_bytes) return HEADER;
    const uint64_t modulus = load<uint32_t>(payload);
    if (modulus == 0) return MODULUS;
    const uint64_t limit = static_cast<uint64_t>(numel);
    const Stream stream{payload, 8 * (size - 7), limit / modulus, Code(modulus)};
    const uint8_t* entries = payload + MODULUS_BYTES;
    Directory directory{entries, entries + directory_bytes, 8 * (MODULUS_BYTES + directory_bytes), 8 * size};

    constexpr int64_t LANES = 4;
    for (int64_t i = 0; i < n;) {
        Lane lanes[LANES];
        // The last block has no entry, so that a group of full blocks is always followed by one more.
        const int64_t together = n - i > LANES * BLOCK ? LANES : 1;
        for (int64_t lane = 0; lane < together; ++lane) {
            if (!directory.open(lanes[lane])) return DIRECTORY;
        }
        const int64_t elements = std::min(BLOCK, n - i);
        const int64_t status = together == LANES ? decode_blocks<LANES>(stream, lanes, elements, limit, indices + i)
                                                 : decode_blocks<1>(stream, lanes, elements, limit, indices + i);
        if (status != OK) return status;
        i += together * BLOCK;
    }
    return OK;
}

}  // namespace

void install_golomb(Kernels& scalar, Kernels& avx2) {
    scalar.golomb_encode = Both<encode>::scalar;
    avx2.golomb_encode = Both<encode>::avx2;
    scalar.golomb_decode = Both<decode>::scalar;
    avx2.golomb_decode = Both<decode>::avx2;
}
