/* One step of a GRU or LSTM, backward through time.

   All that goes into a second is one matrix z_t = (h_t; x_t; 1) of shape [rows, batch], so that one
   product with a matrix of all weights gives all gate sums, and one product of their slopes with
   z_t transposed the gradient of all weights. There are four blocks of gate sums: of a GRU the reset gate, the
   update gate and the new gate's sums from the state and from the input; of an LSTM the input,
   forget and output gates and the cell's.

   sizes: features, hidden units, seconds. Weights and gradient lie as the model's layout has them:
   input.weight [features, gates·hidden], input.bias, recurrent.weight, recurrent.bias, output. */
#define BLOCKS 4

typedef struct {
    int gate, state, input; /* gate of the layout; whether state and input have a part in it */
} block_t;

#ifdef LSTM
enum { GATES = 4, KEPT = BLOCKS + 2 };
static const block_t blocks[BLOCKS] = {{0, 1, 1}, {1, 1, 1}, {3, 1, 1}, {2, 1, 1}};
#else
enum { GATES = 3, KEPT = BLOCKS };
static const block_t blocks[BLOCKS] = {{0, 1, 1}, {1, 1, 1}, {2, 1, 0}, {2, 0, 1}};
#endif

/* Each block of gate sums is `size` floats; `kept` holds the blocks of a second and, of an LSTM,
   the cell and its hyperbolic tangent after it. */
static void advance(float *kept, const float *h, const float *cell, float *next, int64_t size) {
#ifdef LSTM
    float *i = kept, *f = kept + size, *o = kept + 2 * size, *g = kept + 3 * size;
    float *c = kept + 4 * size, *tanh_c = kept + 5 * size;
#pragma omp simd
    for (int64_t k = 0; k < 3 * size; k++) kept[k] = sigmoid(kept[k]);
#pragma omp simd
    for (int64_t k = 0; k < size; k++) {
        g[k] = hyperbolic_tangent(g[k]);
        c[k] = f[k] * cell[k] + i[k] * g[k];
        tanh_c[k] = hyperbolic_tangent(c[k]);
        next[k] = o[k] * tanh_c[k];
    }
#else
    float *reset = kept, *update = kept + size, *recurrent = kept + 2 * size;
    float *fresh = kept + 3 * size;
#pragma omp simd
    for (int64_t k = 0; k < size; k++) {
        reset[k] = sigmoid(reset[k]);
        update[k] = sigmoid(update[k]);
        fresh[k] = hyperbolic_tangent(fresh[k] + reset[k] * recurrent[k]);
        next[k] = fresh[k] + update[k] * (h[k] - fresh[k]);
    }
#endif
}

/* From the slopes of the next state (and cell) to those of the gate sums; what passes by the gates
   stays in dh (and dc). */
static void retreat(const float *kept, const float *h, const float *cell, float *dh, float *dc,
                    float *slope, int64_t size) {
#ifdef LSTM
    const float *i = kept, *f = kept + size, *o = kept + 2 * size, *g = kept + 3 * size;
    const float *tanh_c = kept + 5 * size;
    float *d_i = slope, *d_f = slope + size, *d_o = slope + 2 * size, *d_g = slope + 3 * size;
#pragma omp simd
    for (int64_t k = 0; k < size; k++) {
        const float d = dc[k] + dh[k] * o[k] * (1.0f - tanh_c[k] * tanh_c[k]);
        d_i[k] = d * g[k] * i[k] * (1.0f - i[k]);
        d_f[k] = d * cell[k] * f[k] * (1.0f - f[k]);
        d_o[k] = dh[k] * tanh_c[k] * o[k] * (1.0f - o[k]);
        d_g[k] = d * i[k] * (1.0f - g[k] * g[k]);
        dc[k] = d * f[k];
        dh[k] = 0.0f;
    }
#else
    const float *reset = kept, *update = kept + size, *recurrent = kept + 2 * size;
    const float *fresh = kept + 3 * size;
    float *d_reset = slope, *d_update = slope + size;
    float *d_recurrent = slope + 2 * size, *d_fresh = slope + 3 * size;
#pragma omp simd
    for (int64_t k = 0; k < size; k++) {
        const float z = update[k], r = reset[k], n = fresh[k];
        const float d = dh[k] * (1.0f - z) * (1.0f - n * n);
        d_reset[k] = d * recurrent[k] * r * (1.0f - r);
        d_update[k] = dh[k] * (h[k] - n) * z * (1.0f - z);
        d_recurrent[k] = d * r;
        d_fresh[k] = d;
        dh[k] *= z;
    }
#endif
}

static int64_t model_step(const round_t *round, const float *weights, const float *const *windows,
                          const float *labels, int64_t batch, float *gradient, float *work,
                          step_t *step) {
    sgemm_t *sgemm = round->sgemm;
    const int64_t features = round->sizes[0], hidden = round->sizes[1], seconds = round->sizes[2];
    const int64_t rows = hidden + features + 1, gates = GATES * hidden, size = hidden * batch;
    const int64_t recurrent = (features + 1) * gates, output = recurrent + (hidden + 1) * gates;
    /* z_t for all seconds and one more, the blocks that are kept, and single ones. */
    float *z = work, *kept = z + (seconds + 1) * rows * batch;
    float *matrix = kept + seconds * KEPT * size, *sums = matrix + BLOCKS * hidden * rows;
    float *slope = sums + BLOCKS * hidden * rows, *dh = slope + BLOCKS * size;
    float *dc = dh + size, *nothing = dc + size, *error = nothing + size;
    memset(dc, 0, 2 * size * sizeof(float));
    memset(matrix, 0, 2 * BLOCKS * hidden * rows * sizeof(float));
    for (int block = 0; block < BLOCKS; block++)
        for (int64_t unit = 0; unit < hidden; unit++) {
            float *row = matrix + (block * hidden + unit) * rows;
            const int64_t gate = blocks[block].gate * hidden + unit;
            if (blocks[block].state)
                for (int64_t k = 0; k <= hidden; k++)
                    row[k < hidden ? k : rows - 1] += weights[recurrent + k * gates + gate];
            if (blocks[block].input)
                for (int64_t k = 0; k <= features; k++)
                    row[hidden + k] += weights[k * gates + gate];
        }
    memset(z, 0, size * sizeof(float));
    for (int64_t t = 0; t < seconds; t++) {
        float *x = z + t * rows * batch + size;
        for (int64_t k = 0; k < features; k++)
            for (int64_t b = 0; b < batch; b++)
                x[k * batch + b] = windows[b][t * features + k];
        for (int64_t b = 0; b < batch; b++) x[features * batch + b] = 1.0f;
    }
    for (int64_t t = 0; t < seconds; t++) {
        float *now = z + t * rows * batch, *own = kept + t * KEPT * size;
        const float *cell = t ? own - KEPT * size + 4 * size : nothing;
        multiply(sgemm, 'N', 'N', BLOCKS * hidden, batch, rows, matrix, rows, now, batch, 0.0f, own,
                 batch);
        advance(own, now, cell, now + rows * batch, size);
    }
    const float *last = z + seconds * rows * batch, *weight = weights + output;
    for (int64_t b = 0; b < batch; b++) error[b] = weight[hidden];
    for (int64_t k = 0; k < hidden; k++)
        for (int64_t b = 0; b < batch; b++) error[b] += weight[k] * last[k * batch + b];
    const float share = 1.0f / (float)batch;
    float *slopes = gradient + output;
    slopes[hidden] = 0.0f;
    for (int64_t b = 0; b < batch; b++) {
        error[b] = share * loss_slope(error[b], labels[b]);
        slopes[hidden] += error[b];
    }
    for (int64_t k = 0; k < hidden; k++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t b = 0; b < batch; b++) {
            sum += error[b] * last[k * batch + b];
            dh[k * batch + b] = weight[k] * error[b];
        }
        slopes[k] = sum;
    }
    for (int64_t t = seconds - 1; t >= 0; t--) {
        const float *now = z + t * rows * batch, *own = kept + t * KEPT * size;
        const float *cell = t ? own - KEPT * size + 4 * size : nothing;
        retreat(own, now, cell, dh, dc, slope, size);
        multiply(sgemm, 'N', 'T', rows, BLOCKS * hidden, batch, now, batch, slope, batch, 1.0f,
                 sums, BLOCKS * hidden);
        multiply(sgemm, 'T', 'N', hidden, batch, BLOCKS * hidden, matrix, rows, slope, batch, 1.0f,
                 dh, batch);
    }
    memset(gradient, 0, output * sizeof(float));
    for (int block = 0; block < BLOCKS; block++)
        for (int64_t unit = 0; unit < hidden; unit++) {
            const int64_t gate = blocks[block].gate * hidden + unit;
            const float *column = sums + block * hidden + unit;
            const int64_t apart = BLOCKS * hidden;
            if (blocks[block].state)
                for (int64_t k = 0; k <= hidden; k++)
                    gradient[recurrent + k * gates + gate] =
                        column[(k < hidden ? k : rows - 1) * apart];
            if (blocks[block].input)
                for (int64_t k = 0; k <= features; k++)
                    gradient[k * gates + gate] = column[(hidden + k) * apart];
        }
    take_step(step, 0, output + hidden + 1, gradient);
    return output + hidden + 1;
}
