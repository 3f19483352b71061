/* One step of an MLP, with the gradient that mlp.py beside it has.

   A matrix is given by its lines: windows are read where they lie in the series, and no batch is
   ever put together. Products are computed in tiles that the processor keeps in its registers. */
#if defined(__AVX512F__)
enum { LANES = 16, WIDE = 4 }; /* floats of a vector, vectors of a tile */
#elif defined(__AVX__)
enum { LANES = 8, WIDE = 2 };
#else
enum { LANES = 4, WIDE = 2 };
#endif
enum { TALL = 4, PIECE = 64 }; /* rows of a tile; rows of a gradient that are moved at once */

typedef float vector_t __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

/* C = A B + start, of which this is `vectors` vectors in TALL rows from `row` on. B and C have rows
   of `width` numbers; `start` is such a row, or NULL for zeros. `lines` are the rows of A or, if it
   is `turned`, its columns. */
INLINE void tile(int turned, int vectors, const float *const *lines, int64_t row, int64_t inner,
                 const float *b, int64_t width, const float *start, float *c) {
    vector_t sum[TALL][WIDE], factor[WIDE];
    const float *line[TALL];
    for (int r = 0; r < TALL; r++) {
        line[r] = turned ? NULL : lines[row + r];
        for (int v = 0; v < vectors; v++)
            sum[r][v] = start ? *(const vector_t *)(start + v * LANES) : (vector_t){0};
    }
    for (int64_t k = 0; k < inner; k++) {
        const float *own = b + k * width;
        for (int v = 0; v < vectors; v++) factor[v] = *(const vector_t *)(own + v * LANES);
        for (int r = 0; r < TALL; r++) {
            const float a = turned ? lines[k][row + r] : line[r][k];
            for (int v = 0; v < vectors; v++) sum[r][v] += a * factor[v];
        }
    }
    for (int r = 0; r < TALL; r++)
        for (int v = 0; v < vectors; v++) *(vector_t *)(c + r * width + v * LANES) = sum[r][v];
}

/* `rows` rows of C = A B + start from row `first` of A on; as above. */
INLINE void product(int turned, const float *const *lines, int64_t first, int64_t rows,
                    int64_t inner, const float *b, int64_t width, const float *start, float *c) {
    if (rows < TALL || width < LANES) {
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < width; j++) {
                float sum = start ? start[j] : 0.0f;
                for (int64_t k = 0; k < inner; k++)
                    sum += (turned ? lines[k][first + r] : lines[first + r][k]) * b[k * width + j];
                c[r * width + j] = sum;
            }
        return;
    }
    int vectors;
    for (int64_t column = 0; column < width; column += vectors * LANES) {
        const int64_t left = width - column;
        vectors = left >= WIDE * LANES ? WIDE : left >= WIDE / 2 * LANES ? WIDE / 2 : 1;
        /* The last tiles reach back over what is known already rather than beyond the matrix. */
        const int64_t at = left < LANES ? width - LANES : column;
        for (int64_t r = 0; r < rows; r += TALL) {
            const int64_t here = r + TALL > rows ? rows - TALL : r;
            const float *from = start ? start + at : NULL;
            float *to = c + here * width + at;
            if (vectors == WIDE)
                tile(turned, WIDE, lines, first + here, inner, b + at, width, from, to);
            else if (vectors == WIDE / 2)
                tile(turned, WIDE / 2, lines, first + here, inner, b + at, width, from, to);
            else
                tile(turned, 1, lines, first + here, inner, b + at, width, from, to);
        }
    }
}

/* C [rows, width] = A B + start; `lines` are the rows of A [rows, inner]. */
static void line_product(const float *const *lines, int64_t rows, int64_t inner, const float *b,
                         int64_t width, const float *start, float *c) {
    product(0, lines, 0, rows, inner, b, width, start, c);
}

/* C [rows, width] = Aᵀ B for `rows` columns of A from `first` on; `lines` are its `inner` rows. */
static void turned_product(const float *const *lines, int64_t first, int64_t rows, int64_t inner,
                           const float *b, int64_t width, float *c) {
    product(1, lines, first, rows, inner, b, width, NULL, c);
}

/* Lines of a matrix whose rows of `width` numbers lie one after the other. */
static const float *const *lines_of(const float *matrix, int64_t rows, int64_t width,
                                    const float **lines) {
    for (int64_t r = 0; r < rows; r++) lines[r] = matrix + r * width;
    return lines;
}

/* sizes: number of hidden layers, inputs, widths of the hidden layers. Weights lie as the model's
   layout has them: each matrix [in, out] and its bias [out]. In `work` there are two blocks
   [batch, width] for each hidden layer, a matrix turned, and lines. */
static int64_t model_step(const round_t *round, const float *weights, const float *const *windows,
                          const float *labels, int64_t count, float *gradient, float *work,
                          step_t *step) {
    const int64_t layers = round->sizes[0], *width = round->sizes + 1;
    float *hidden[layers], *errors[layers];
    const float **lines = (const float **)taken(&work, 2 * count);
    const float *matrix = weights;
    for (int64_t i = 0; i < layers; i++) {
        const int64_t in = width[i], out = width[i + 1];
        float *own = hidden[i] = taken(&work, count * out);
        errors[i] = taken(&work, count * out);
        const float *const *inputs = i ? lines_of(hidden[i - 1], count, in, lines) : windows;
        line_product(inputs, count, in, matrix, out, matrix + in * out, own);
        for (int64_t k = 0; k < count * out; k++) own[k] = own[k] > 0.0f ? own[k] : 0.0f;
        matrix += (in + 1) * out;
    }
    /* The output has one column. */
    const int64_t last = width[layers];
    const float share = 1.0f / (float)count, *top = hidden[layers - 1];
    float *error = errors[layers - 1];
    memset(gradient, 0, (last + 1) * sizeof(float));
    for (int64_t b = 0; b < count; b++) {
        float prediction = 0.0f;
#pragma omp simd reduction(+ : prediction)
        for (int64_t k = 0; k < last; k++) prediction += top[b * last + k] * matrix[k];
        const float slope = share * loss_slope(prediction + matrix[last], labels[b]);
        for (int64_t k = 0; k < last; k++) {
            gradient[k] += slope * top[b * last + k];
            error[b * last + k] = top[b * last + k] > 0.0f ? slope * matrix[k] : 0.0f;
        }
        gradient[last] += slope;
    }
    const int64_t size = matrix + last + 1 - weights;
    take_step(step, matrix - weights, last + 1, gradient);
    for (int64_t i = layers - 1; i >= 0; i--) {
        const int64_t in = width[i], out = width[i + 1];
        matrix -= (in + 1) * out;
        if (i > 0) { /* before the matrix is moved */
            float *turned = work, *below = errors[i - 1];
            for (int64_t k = 0; k < in; k++)
                for (int64_t j = 0; j < out; j++) turned[j * in + k] = matrix[k * out + j];
            const float *const *above = lines_of(errors[i], count, out, lines);
            line_product(above, count, out, turned, in, NULL, below);
            for (int64_t k = 0; k < count * in; k++)
                below[k] = hidden[i - 1][k] > 0.0f ? below[k] : 0.0f;
        }
        const float *const *inputs = i ? lines_of(hidden[i - 1], count, in, lines) : windows;
        for (int64_t first = 0; first < in; first += PIECE) {
            const int64_t rows = in - first < PIECE ? in - first : PIECE;
            turned_product(inputs, first, rows, count, errors[i], out, gradient);
            int64_t known = rows * out;
            if (first + rows == in) { /* the bias follows the last row */
                memset(gradient + known, 0, out * sizeof(float));
                for (int64_t b = 0; b < count; b++)
                    for (int64_t j = 0; j < out; j++) gradient[known + j] += errors[i][b * out + j];
                known += out;
            }
            take_step(step, matrix - weights + first * out, known, gradient);
        }
    }
    return size;
}
