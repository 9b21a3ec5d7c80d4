// The loops of skinny.cpp, compiled once for each instruction set, and so without a guard. Whoever includes this defines
// TARGET, and around it Pack (16 floats) with its functions, RIGHT_ROWS, RIGHT_RANKS, LEFT_ROWS, LEFT_RANKS, OUTER_ROWS and
// OUTER_PACKS: tiles that fit the registers.

TARGET INLINE float tree(Pack pack) {
    alignas(64) float sum[LANES];
    store(sum, pack);
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) sum[lane] += sum[lane + half];
    }
    return sum[0];
}

// Dots of some rows of the matrix with some columns of the factor.
template <int Rows, int Ranks>
TARGET INLINE void right_tile(const float* matrix, int64_t rows, int64_t columns, const float* factor, float* out) {
    Pack sum[Rows][Ranks], one[Ranks];
    for (int i = 0; i < Rows; ++i) {
        for (int c = 0; c < Ranks; ++c) sum[i][c] = splat(0.0f);
    }
    int64_t j = 0;
    for (; j + LANES <= columns; j += LANES) {
        for (int c = 0; c < Ranks; ++c) one[c] = load(factor + c * columns + j);
        for (int i = 0; i < Rows; ++i) {
            __builtin_prefetch(matrix + i * columns + j + AHEAD);
            const Pack x = load(matrix + i * columns + j);
            for (int c = 0; c < Ranks; ++c) sum[i][c] = add_product(sum[i][c], x, one[c]);
        }
    }
    if (j < columns) {
        for (int c = 0; c < Ranks; ++c) one[c] = load_some(factor + c * columns + j, columns - j);
        for (int i = 0; i < Rows; ++i) {
            const Pack x = load_some(matrix + i * columns + j, columns - j);
            for (int c = 0; c < Ranks; ++c) sum[i][c] = add_product(sum[i][c], x, one[c]);
        }
    }
    for (int i = 0; i < Rows; ++i) {
        for (int c = 0; c < Ranks; ++c) out[c * rows + i] = tree(sum[i][c]);
    }
}

template <int Rows>
TARGET INLINE void right_rows(const float* matrix, int64_t rows, int64_t columns, int64_t rank, const float* factor,
                              float* out) {
    int64_t c = 0;
    for (; c + RIGHT_RANKS <= rank; c += RIGHT_RANKS) {
        right_tile<Rows, RIGHT_RANKS>(matrix, rows, columns, factor + c * columns, out + c * rows);
    }
    for (; c + 2 <= rank; c += 2) right_tile<Rows, 2>(matrix, rows, columns, factor + c * columns, out + c * rows);
    if (c < rank) right_tile<Rows, 1>(matrix, rows, columns, factor + c * columns, out + c * rows);
}

TARGET void right(int64_t, const float* matrix, int64_t rows, int64_t columns, int64_t rank, const float* factor,
                  float* out) {
    int64_t i = 0;
    for (; i + RIGHT_ROWS <= rows; i += RIGHT_ROWS) {
        right_rows<RIGHT_ROWS>(matrix + i * columns, rows, columns, rank, factor, out + i);
    }
    for (; i < rows; ++i) right_rows<1>(matrix + i * columns, rows, columns, rank, factor, out + i);
}

// Adds some rows of the matrix, each times its coefficients, to some columns of the result.
template <int Rows, int Ranks>
TARGET INLINE void left_tile(int64_t count, const float* matrix, int64_t rows, int64_t columns, const float* factor,
                             float* out) {
    Pack coefficient[Rows][Ranks], sum[Ranks];
    for (int i = 0; i < Rows; ++i) {
        for (int c = 0; c < Ranks; ++c) coefficient[i][c] = splat(factor[c * rows + i]);
    }
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES) {
        for (int c = 0; c < Ranks; ++c) sum[c] = load(out + c * columns + j);
        for (int i = 0; i < Rows; ++i) {
            __builtin_prefetch(matrix + i * columns + j + AHEAD);
            const Pack x = load(matrix + i * columns + j);
            for (int c = 0; c < Ranks; ++c) sum[c] = add_product(sum[c], x, coefficient[i][c]);
        }
        for (int c = 0; c < Ranks; ++c) store(out + c * columns + j, sum[c]);
    }
    if (j == count) return;
    for (int c = 0; c < Ranks; ++c) sum[c] = load_some(out + c * columns + j, count - j);
    for (int i = 0; i < Rows; ++i) {
        const Pack x = load_some(matrix + i * columns + j, count - j);
        for (int c = 0; c < Ranks; ++c) sum[c] = add_product(sum[c], x, coefficient[i][c]);
    }
    for (int c = 0; c < Ranks; ++c) store_some(out + c * columns + j, sum[c], count - j);
}

template <int Rows>
TARGET INLINE void left_rows(int64_t count, const float* matrix, int64_t rows, int64_t columns, int64_t rank,
                             const float* factor, float* out) {
    int64_t c = 0;
    for (; c + LEFT_RANKS <= rank; c += LEFT_RANKS) {
        left_tile<Rows, LEFT_RANKS>(count, matrix, rows, columns, factor + c * rows, out + c * columns);
    }
    for (; c < rank; ++c) left_tile<Rows, 1>(count, matrix, rows, columns, factor + c * rows, out + c * columns);
}

TARGET void left(int64_t, const float* matrix, int64_t rows, int64_t columns, int64_t rank, const float* factor,
                 float* out) {
    for (int64_t j = 0; j < columns; j += CHUNK) {
        const int64_t count = columns - j < CHUNK ? columns - j : CHUNK;
        for (int64_t c = 0; c < rank; ++c) {
            std::memset(out + c * columns + j, 0, static_cast<size_t>(count) * sizeof(float));
        }
        int64_t i = 0;
        for (; i + LEFT_ROWS <= rows; i += LEFT_ROWS) {
            left_rows<LEFT_ROWS>(count, matrix + i * columns + j, rows, columns, rank, factor + i, out + j);
        }
        for (; i < rows; ++i) left_rows<1>(count, matrix + i * columns + j, rows, columns, rank, factor + i, out + j);
    }
}

// What multiplies the rows at hand: coefficient c of row i is at c * stride + i.
struct Coefficients {
    const float* first;
    int64_t stride;
};

// Some rows of the product, 16 * Packs columns of each.
template <int Rows, int Packs>
TARGET INLINE void outer_tile(const Coefficients& left, int64_t columns, int64_t rank, const float* factor,
                              float* residual, float* out) {
    Pack sum[Rows][Packs], one[Packs];
    for (int k = 0; k < Packs; ++k) one[k] = load(factor + k * LANES);
    for (int i = 0; i < Rows; ++i) {
        const Pack coefficient = splat(left.first[i]);
        for (int k = 0; k < Packs; ++k) sum[i][k] = multiply(coefficient, one[k]);
    }
    for (int64_t c = 1; c < rank; ++c) {
        for (int k = 0; k < Packs; ++k) one[k] = load(factor + c * columns + k * LANES);
        for (int i = 0; i < Rows; ++i) {
            const Pack coefficient = splat(left.first[c * left.stride + i]);
            for (int k = 0; k < Packs; ++k) sum[i][k] = add_product(sum[i][k], coefficient, one[k]);
        }
    }
    for (int i = 0; i < Rows; ++i, residual += columns, out += columns) {
        for (int k = 0; k < Packs; ++k) {
            store(out + k * LANES, sum[i][k]);
            store(residual + k * LANES, subtract(load(residual + k * LANES), sum[i][k]));
        }
    }
}

template <int Rows>
TARGET INLINE void outer_some(const Coefficients& left, int64_t columns, int64_t rank, const float* factor,
                              float* residual, float* out, int64_t count) {
    for (int i = 0; i < Rows; ++i, residual += columns, out += columns) {
        Pack sum = multiply(splat(left.first[i]), load_some(factor, count));
        for (int64_t c = 1; c < rank; ++c) {
            const Pack coefficient = splat(left.first[c * left.stride + i]);
            sum = add_product(sum, coefficient, load_some(factor + c * columns, count));
        }
        store_some(out, sum, count);
        store_some(residual, subtract(load_some(residual, count), sum), count);
    }
}

// One row, or several that share what is read of the factor.
template <int Rows, int Packs>
TARGET INLINE void outer_rows(const float* left, const float* right, int64_t rows, int64_t columns, int64_t rank,
                              float* residual, float* out) {
    float near[NEAR_RANKS * Rows];
    Coefficients coefficients{left, rows};
    if (rank <= NEAR_RANKS) {
        for (int64_t c = 0; c < rank; ++c) {
            for (int i = 0; i < Rows; ++i) near[c * Rows + i] = left[c * rows + i];
        }
        coefficients = {near, Rows};
    }
    int64_t j = before_alignment(out, columns, LANES * sizeof(float));
    if (j > 0) outer_some<Rows>(coefficients, columns, rank, right, residual, out, j);
    for (; j + Packs * LANES <= columns; j += Packs * LANES) {
        outer_tile<Rows, Packs>(coefficients, columns, rank, right + j, residual + j, out + j);
    }
    for (; j + LANES <= columns; j += LANES) {
        outer_tile<Rows, 1>(coefficients, columns, rank, right + j, residual + j, out + j);
    }
    if (j < columns) outer_some<Rows>(coefficients, columns, rank, right + j, residual + j, out + j, columns - j);
}

TARGET void outer(int64_t, const float* left, const float* right, int64_t rows, int64_t columns, int64_t rank,
                  float* residual, float* out) {
    int64_t i = 0;
    for (; rank > FEW_RANKS && i + OUTER_ROWS <= rows; i += OUTER_ROWS) {
        outer_rows<OUTER_ROWS, OUTER_PACKS>(left + i, right, rows, columns, rank, residual + i * columns,
                                            out + i * columns);
    }
    for (; i < rows; ++i) {
        outer_rows<1, 4>(left + i, right, rows, columns, rank, residual + i * columns, out + i * columns);
    }
}
