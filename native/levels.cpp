// Values as a sign and a level of the excess over the smallest magnitude, 2, 3, 4 or 8 bits together.
#include <cmath>

#include "reduce.h"

namespace {

constexpr int64_t LOW_BYTES = 4;
constexpr int64_t GROUP = 8;   // values whose codes take `bits` bytes
constexpr int64_t CHUNK = 64;  // values that are coded together
constexpr float LARGEST = 3.4028234663852886e38f;
constexpr uint32_t SIGN = 0x80000000u;

// Levels for a unit mean excess: the Lloyd-Max quantizer of the exponential distribution, in units of 1/256.
template <int Bits>
struct Exponential;
template <>
struct Exponential<2> {
    static constexpr float levels[] = {152 / 256.f, 664 / 256.f};
};
template <>
struct Exponential<3> {
    static constexpr float levels[] = {85 / 256.f, 302 / 256.f, 605 / 256.f, 1117 / 256.f};
};
template <>
struct Exponential<4> {
    static constexpr float levels[] = {45 / 256.f,  147 / 256.f, 264 / 256.f,  402 / 256.f,
                                       571 / 256.f, 788 / 256.f, 1092 / 256.f, 1604 / 256.f};
};

// What a number of bits means: which level an excess takes, what a level stands for, what the scale is.
template <int Bits>
struct Levels {
    static constexpr int COUNT = 1 << (Bits - 1);

    static INLINE uint32_t nearest(float excess) {
        uint32_t level = 0;
        for (int i = 1; i < COUNT; ++i) {
            level += excess >= (Exponential<Bits>::levels[i - 1] + Exponential<Bits>::levels[i]) / 2;
        }
        return level;
    }

    // Summed up from masked differences, which vectors can do, where looking up would take a load for each value.
    static INLINE float at(uint32_t level) {
        uint32_t bits = bits_of(Exponential<Bits>::levels[0]);
        for (uint32_t i = 1; i < COUNT; ++i) {
            const uint32_t step = bits_of(Exponential<Bits>::levels[i]) - bits_of(Exponential<Bits>::levels[i - 1]);
            bits += step & (0u - static_cast<uint32_t>(level >= i));
        }
        return float_of(bits);
    }

    static INLINE float scale(int64_t n, const float* values, float low, float) {
        const float mean = static_cast<float>(std::max(0.0, sum_magnitudes_of(n, values) / static_cast<double>(n) - low));
        return std::min(mean, (LARGEST - low) / 8.0f);  // no level is above 8: the largest stays finite
    }
};

// 128 levels whose distance grows with the excess, up to the largest.
template <>
struct Levels<8> {
    static constexpr int COUNT = 128;

    static INLINE uint32_t nearest(float excess) {
        const uint32_t level = static_cast<uint32_t>(static_cast<int32_t>(std::sqrt(excess) * 128.0f));
        return level - (level >> 7);  // 128, which only the largest reaches, is in the last level
    }

    static INLINE float at(uint32_t level) {
        const float odd = static_cast<float>(static_cast<int32_t>(2 * level + 1));
        return odd * odd * 0x1p-16f;
    }

    static INLINE float scale(int64_t, const float*, float low, float high) { return high - low; }
};

struct Range {
    float low, high;
};

INLINE Range range_of(int64_t n, const float* values) {
    uint32_t low = MAGNITUDE, high = 0;
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t magnitude = bits_of(values[i]) & MAGNITUDE;
        low = std::min(low, magnitude);
        high = std::max(high, magnitude);
    }
    return {float_of(low), float_of(high)};
}

// Packs eight codes, a byte each, into the lowest bits, in three steps of halving the space between them.
template <int Bits>
INLINE uint64_t squeeze(uint64_t codes) {
    constexpr uint64_t BYTES = 0x00FF00FF00FF00FF, HALVES = 0x0000FFFF0000FFFF;
    if (Bits == 8) return codes;
    const uint64_t pairs = (codes & BYTES) | (codes >> 8 & BYTES) << Bits;
    const uint64_t fours = (pairs & HALVES) | (pairs >> 16 & HALVES) << (2 * Bits);
    return (fours & 0xFFFFFFFF) | fours >> 32 << (4 * Bits);
}

template <int Bits>
INLINE uint64_t spread(uint64_t packed) {
    constexpr uint64_t ONE = (1 << Bits) - 1;
    if (Bits == 8) return packed;
    const uint64_t fours = (packed & ((uint64_t{1} << 4 * Bits) - 1)) | packed >> (4 * Bits) << 32;
    const uint64_t pairs = (fours & 0x0000000100000001 * ((1u << 2 * Bits) - 1)) |
                           (fours >> (2 * Bits) & 0x0000000100000001 * ((1u << 2 * Bits) - 1)) << 16;
    return (pairs & 0x0001000100010001 * ONE) | (pairs >> Bits & 0x0001000100010001 * ONE) << 8;
}

// The `Bits` bytes of a group. Put together from loads of two sizes: a copy through memory would stall.
template <int Bits>
INLINE uint64_t load_group(const uint8_t* next) {
    if (Bits == 8) return load<uint64_t>(next);
    if (Bits == 4) return load<uint32_t>(next);
    return load<uint16_t>(next) | (Bits == 3 ? uint64_t{next[2]} << 16 : 0);
}

template <int Bits>
INLINE void store_group(uint8_t* next, uint64_t packed) {
    if (Bits == 8) return store<uint64_t>(next, packed);
    if (Bits == 4) return store<uint32_t>(next, static_cast<uint32_t>(packed));
    store<uint16_t>(next, static_cast<uint16_t>(packed));
    if (Bits == 3) next[2] = static_cast<uint8_t>(packed >> 16);
}

// What all values of a frame share. A magnitude is low + scale * level.
struct Frame {
    float low, scale, divisor;
};

template <int Bits>
INLINE void encode_chunk(const float* values, const Frame& frame, uint8_t* next, float* decoded) {
    uint8_t codes[CHUNK];
    for (int i = 0; i < CHUNK; ++i) {
        const uint32_t sign = bits_of(values[i]) & SIGN;
        const float magnitude = float_of(bits_of(values[i]) & MAGNITUDE);
        const uint32_t level = Levels<Bits>::nearest((magnitude - frame.low) / frame.divisor);
        codes[i] = static_cast<uint8_t>(level | sign >> (32 - Bits));
        decoded[i] = float_of(bits_of(frame.low + frame.scale * Levels<Bits>::at(level)) | sign);
    }
    for (int i = 0; i < CHUNK; i += GROUP, next += Bits) {
        store_group<Bits>(next, squeeze<Bits>(load<uint64_t>(codes + i)));
    }
}

template <int Bits>
INLINE void decode_chunk(const uint8_t* next, const Frame& frame, float* values) {
    uint8_t codes[CHUNK];
    for (int i = 0; i < CHUNK; i += GROUP, next += Bits) {
        store<uint64_t>(codes + i, spread<Bits>(load_group<Bits>(next)));
    }
    for (int i = 0; i < CHUNK; ++i) {
        const uint32_t code = codes[i], sign = code >> (Bits - 1) << 31;
        const float magnitude = frame.low + frame.scale * Levels<Bits>::at(code & (Levels<Bits>::COUNT - 1));
        values[i] = float_of(bits_of(magnitude) | sign);
    }
}

template <int Bits>
INLINE float encode_with(int64_t n, const float* values, uint8_t* out, float* decoded) {
    const Range range = range_of(n, values);
    const float scale = Levels<Bits>::scale(n, values, range.low, range.high);
    const Frame frame{range.low, scale, scale > 0.0f ? scale : 1.0f};
    store<uint32_t>(out, bits_of(range.low));
    uint8_t* next = out + LOW_BYTES;
    int64_t i = 0;
    for (; i + CHUNK <= n; i += CHUNK, next += CHUNK / GROUP * Bits) {
        encode_chunk<Bits>(values + i, frame, next, decoded + i);
    }
    if (i == n) return scale;
    float rest[CHUNK] = {}, rest_decoded[CHUNK];
    uint8_t rest_out[CHUNK];
    const int64_t count = n - i, bits = count * Bits;
    std::memcpy(rest, values + i, static_cast<size_t>(count) * sizeof(float));
    encode_chunk<Bits>(rest, frame, rest_out, rest_decoded);
    if ((bits & 7) != 0) rest_out[bits >> 3] &= static_cast<uint8_t>((1 << (bits & 7)) - 1);
    std::memcpy(next, rest_out, static_cast<size_t>((bits + 7) / 8));
    std::memcpy(decoded + i, rest_decoded, static_cast<size_t>(count) * sizeof(float));
    return scale;
}

template <int Bits>
INLINE int64_t decode_with(int64_t n, const uint8_t* payload, float scale, float* values) {
    const Frame frame{float_of(load<uint32_t>(payload)), scale, 0.0f};
    const float highest = frame.low + scale * Levels<Bits>::at(Levels<Bits>::COUNT - 1);
    const uint32_t all = bits_of(frame.low) | bits_of(scale);
    if ((all & SIGN) != 0 || bits_of(highest) >= INFINITE) return LEVELS;
    const uint8_t* next = payload + LOW_BYTES;
    if ((n * Bits & 7) != 0 && next[n * Bits >> 3] >> (n * Bits & 7) != 0) return PADDING;
    int64_t i = 0;
    for (; i + CHUNK <= n; i += CHUNK, next += CHUNK / GROUP * Bits) decode_chunk<Bits>(next, frame, values + i);
    if (i == n) return OK;
    uint8_t rest[CHUNK] = {};
    float rest_values[CHUNK];
    std::memcpy(rest, next, static_cast<size_t>(((n - i) * Bits + 7) / 8));
    decode_chunk<Bits>(rest, frame, rest_values);
    std::memcpy(values + i, rest_values, static_cast<size_t>(n - i) * sizeof(float));
    return OK;
}

INLINE float encode(int64_t n, const float* values, int64_t bits, uint8_t* out, float* decoded) {
    if (n == 0) return 0.0f;
    if (bits == 2) return encode_with<2>(n, values, out, decoded);
    if (bits == 3) return encode_with<3>(n, values, out, decoded);
    if (bits == 4) return encode_with<4>(n, values, out, decoded);
    return encode_with<8>(n, values, out, decoded);
}

INLINE int64_t decode(int64_t n, const uint8_t* payload, int64_t bits, float scale, float* values) {
    if (n == 0) return (bits_of(scale) & SIGN) != 0 || bits_of(scale) >= INFINITE ? LEVELS : OK;
    if (bits == 2) return decode_with<2>(n, payload, scale, values);
    if (bits == 3) return decode_with<3>(n, payload, scale, values);
    if (bits == 4) return decode_with<4>(n, payload, scale, values);
    return decode_with<8>(n, payload, scale, values);
}

}  // namespace

void install_levels(Tables& tables) {
    install<&Kernels::levels_encode, encode>(tables);
    install<&Kernels::levels_decode, decode>(tables);
}
