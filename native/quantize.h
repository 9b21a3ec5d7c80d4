// The schemes of whole gradients' codes: how a value becomes a digit and back. See sparse_ring/kernels/quantize.py.
#pragma once

#include <algorithm>
#include <cmath>

#include "common.h"

// By their numbers on the wire.
enum Scheme : int64_t {
    BLOCK8 = 8,
    TREE8 = 9,
    QSGD2 = 10,
    QSGD4 = 11,
    QSGD8 = 12,
    TERNARY = 13,
    FOUR4 = 14,
    TWO2 = 15,
    ONE1 = 16,
};

constexpr int64_t COLUMNS = 64;  // bytes that are coded together
constexpr uint32_t SIGN = 0x80000000u;
constexpr float LARGEST = 3.4028234663852886e38f;

struct Key {
    uint32_t low, high;
};

// The finalizer of MurmurHash3.
INLINE uint32_t mixed(uint32_t x) {
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    return x ^ x >> 16;
}

INLINE uint32_t random_word(uint32_t index, Key key) { return mixed(mixed(index ^ key.low) + key.high); }

// What the values of a block share: one1's two scales, everybody else's one.
struct Unit {
    float scale, negative;
};

// The nearest integer, ties to even, of 0 <= x < 2^22: what is left of the mantissa after the addition.
INLINE uint32_t nearest_integer(float x) { return bits_of(x + 0x1p23f) & 0x3FFFFF; }

// min(x, 1) of x >= 0, whose bits are ordered as the values are: a comparison of floats would become a branch.
INLINE float at_most_one(float x) {
    return float_of(static_cast<uint32_t>(std::min(static_cast<int32_t>(bits_of(x)), int32_t{0x3F800000})));
}

// Digits: a sign and a level as bits, or as one of three.

template <int Bits>
struct SignedBits {
    static constexpr uint32_t BASE = 1u << Bits;
    static constexpr int PER_BYTE = 8 / Bits;
    static INLINE uint32_t digit(uint32_t level, uint32_t negative) { return level | negative << (Bits - 1); }
    static INLINE uint32_t level(uint32_t digit) { return digit & (BASE / 2 - 1); }
    static INLINE uint32_t sign(uint32_t digit) { return digit >> (Bits - 1) << 31; }
};

struct Trit {
    static constexpr uint32_t BASE = 3;
    static constexpr int PER_BYTE = 5;
    static INLINE uint32_t digit(uint32_t level, uint32_t negative) { return level + (level & negative); }
    static INLINE uint32_t level(uint32_t digit) { return (digit + 1) >> 1; }
    static INLINE uint32_t sign(uint32_t digit) { return digit >> 1 << 31; }
};

// Levels: which one x = |value| / scale takes, and the magnitude that it stands for.

template <int Highest>
struct Linear {
    static INLINE float at(uint32_t level) {
        return static_cast<float>(static_cast<int32_t>(level)) * (1.0f / Highest);
    }
};

template <int Highest>
struct Nearest : Linear<Highest> {
    static constexpr bool RANDOM = false;
    static INLINE uint32_t level(float x, uint32_t) { return nearest_integer(x * static_cast<float>(Highest)); }
};

template <int Highest>
struct Stochastic : Linear<Highest> {
    static constexpr bool RANDOM = true;
    static INLINE uint32_t level(float x, uint32_t word) {
        const float y = at_most_one(x) * static_cast<float>(Highest);
        const int32_t whole = static_cast<int32_t>(y);
        const float part = (y - static_cast<float>(whole)) * 0x1p24f;
        return static_cast<uint32_t>(whole + (static_cast<float>(static_cast<int32_t>(word >> 8)) < part));
    }
};

struct TowardZero : Linear<1> {
    static constexpr bool RANDOM = false;
    static INLINE uint32_t level(float x, uint32_t) { return x >= 1.0f; }
};

// The dynamic tree: decade f of a level is its highest bit; see quantize.py for the formulas.
struct TreeConstants {
    float magnitudes[128] = {}, borders[7] = {}, factors[7] = {}, offsets[7] = {};

    constexpr TreeConstants() {
        double power = 1e7;
        for (int f = 0, parts = 1; f < 7; ++f, parts *= 2, power /= 10) {
            for (int part = 0; part < parts; ++part) {
                magnitudes[parts + part] = static_cast<float>((1 + 9.0 * (part + 1) / parts) / power);
            }
            borders[f] = static_cast<float>((1 + 4.5 / parts) / power);
            factors[f] = static_cast<float>(f == 0 ? 1e6 : power * parts / 9);
            offsets[f] = static_cast<float>(f == 0 ? 0 : 8.0 * parts / 9 - 1);
        }
    }
};

struct Tree {
    static constexpr bool RANDOM = false;
    static constexpr TreeConstants constants{};

    static INLINE uint32_t level(float x, uint32_t) {
        uint32_t factor = bits_of(constants.factors[0]), offset = bits_of(constants.offsets[0]), last = 1;
        // Constants are chosen by masked differences, which vectors can do, where looking up would take loads.
        for (int f = 1; f < 7; ++f) {
            const uint32_t passed = 0u - static_cast<uint32_t>(x >= constants.borders[f]);
            factor += passed & (bits_of(constants.factors[f]) - bits_of(constants.factors[f - 1]));
            offset += passed & (bits_of(constants.offsets[f]) - bits_of(constants.offsets[f - 1]));
            last += passed & (1u << f);
        }
        return std::min(nearest_integer(x * float_of(factor) + float_of(offset)), last);
    }

    static INLINE float at(uint32_t level) { return constants.magnitudes[level]; }
};

struct Geometric {
    static constexpr bool RANDOM = false;
    static constexpr int COUNT = 8, TABLES = 3;
    static constexpr float magnitudes[TABLES][COUNT] = {
        {0, 143 / 1024.f, 198 / 1024.f, 275 / 1024.f, 382 / 1024.f, 531 / 1024.f, 737 / 1024.f, 1},
        {0, 85 / 1024.f, 128 / 1024.f, 194 / 1024.f, 294 / 1024.f, 446 / 1024.f, 676 / 1024.f, 1},
        {0, 25 / 1024.f, 47 / 1024.f, 87 / 1024.f, 161 / 1024.f, 299 / 1024.f, 553 / 1024.f, 1},
    };
    static constexpr double from[TABLES] = {0, 1.75, 2.25}, reach[TABLES] = {2.625, 4.375, 16};
};

template <int Table>
struct GeometricTable : Geometric {
    static INLINE uint32_t level(float x, uint32_t) {
        uint32_t level = 0;
        for (int i = 1; i < COUNT; ++i) level += x >= (magnitudes[Table][i - 1] + magnitudes[Table][i]) / 2;
        return level;
    }

    static INLINE float at(uint32_t level) {
        uint32_t bits = 0;
        for (uint32_t i = 1; i < COUNT; ++i) {
            const uint32_t step = bits_of(magnitudes[Table][i]) - bits_of(magnitudes[Table][i - 1]);
            bits += step & (0u - static_cast<uint32_t>(level >= i));
        }
        return float_of(bits);
    }
};

// Schemes: digits and levels, how many values share a unit (0: all), how many scales a unit has in the payload.

template <class Digits, class Levels, int64_t Block, int Scales>
struct Magnitudes {
    static constexpr uint32_t BASE = Digits::BASE;
    static constexpr int PER_BYTE = Digits::PER_BYTE;
    static constexpr int64_t CHUNK = COLUMNS * PER_BYTE, BLOCK = Block, SCALES = Scales, WORDS = 0;
    static constexpr bool RANDOM = Levels::RANDOM;

    static INLINE float divisor(Unit unit) { return unit.scale > 0.0f ? unit.scale : 1.0f; }

    static INLINE uint32_t digit(float value, float divisor, uint32_t word) {
        const float x = float_of(bits_of(value) & MAGNITUDE) / divisor;
        return Digits::digit(Levels::level(x, word), bits_of(value) >> 31);
    }

    static INLINE float value(uint32_t digit, Unit unit) {
        return float_of(bits_of(unit.scale * Levels::at(Digits::level(digit))) | Digits::sign(digit));
    }
};

template <int Table>
struct Four : Magnitudes<SignedBits<4>, GeometricTable<Table>, 0, 1> {
    static constexpr int64_t WORDS = 1;  // the table's number
};

// The side of zero, each with its mean.
struct Side {
    static constexpr uint32_t BASE = 2;
    static constexpr int PER_BYTE = 8;
    static constexpr int64_t CHUNK = COLUMNS * PER_BYTE, BLOCK = 4096, SCALES = 2, WORDS = 0;
    static constexpr bool RANDOM = false;
    static INLINE float divisor(Unit) { return 1.0f; }
    static INLINE uint32_t digit(float value, float, uint32_t) { return value < 0.0f; }
    static INLINE float value(uint32_t digit, Unit unit) {
        const uint32_t negative = 0u - digit, apart = bits_of(unit.scale) ^ (bits_of(unit.negative) | SIGN);
        return float_of(bits_of(unit.scale) ^ (negative & apart));
    }
};

using Block8 = Magnitudes<SignedBits<8>, Nearest<127>, 256, 1>;
using Tree8 = Magnitudes<SignedBits<8>, Tree, 4096, 1>;
using Qsgd2 = Magnitudes<SignedBits<2>, Stochastic<1>, 512, 1>;
using Qsgd4 = Magnitudes<SignedBits<4>, Stochastic<7>, 512, 1>;
using Qsgd8 = Magnitudes<SignedBits<8>, Stochastic<127>, 512, 1>;
using Ternary = Magnitudes<Trit, Stochastic<1>, 0, 0>;
using Two2 = Magnitudes<SignedBits<2>, TowardZero, 0, 0>;

// How n values lie in a payload.
template <class S>
struct Layout {
    int64_t block, blocks, digits;  // values of a block; how many blocks; where digits begin

    explicit INLINE Layout(int64_t n)
        : block(S::BLOCK != 0 ? S::BLOCK : n),
          blocks((n + block - 1) / block),
          digits(4 * (S::SCALES * blocks + S::WORDS)) {}
};

template <class S>
INLINE int64_t columns_of(int64_t values) {
    return (values + S::PER_BYTE - 1) / S::PER_BYTE;
}
