/* A vehicle's whole round of an MLP with two hidden layers, by one block of threads on one
   multiprocessor. There, its weights never leave the chip between two steps.

   mlp_gpu.py puts the source together: trace.cu, the rules' steps `First` and `Later` with what they
   read (`Beside`, `Rows`), the slope of the loss, the sizes below, and this file.

   INPUTS      numbers of a window           FEATURES  numbers of a second of the series
   UNITS1, 2   hidden units                  BATCH     windows of a batch
   PRODUCTS    3: products as exact as in float32; 1: in TF32

   The first matrix, nearly all of the weights, is kept in registers, and a batch of windows in
   shared memory. Products are taken by tensor cores, which multiply numbers of 11 bits (TF32). Each
   number is the sum of two such, and x y = x1 y1 + x1 y2 + x2 y1 up to 2^-22 of it.

   A tensor core multiplies a tile [16, 8] by a tile [8, 8]; mma.m16n8k8 says which of the 32 lanes
   holds which numbers. With g = lane / 4 and t = lane % 4, a lane has of the left factor the rows g
   and g + 8 in the columns t and t + 4, of the right one the rows t and t + 4 in column g, and of
   the product the rows g and g + 8 in the columns 2t and 2t + 1. */

/* What a block has in shared memory. */
struct Shared {
    float windows[WINDOWS * OF_X];
    float hidden1[PARTS * WINDOWS * OF_1]; /* [part, window, unit]: at first sums of SHARES warps */
    float hidden2[WINDOWS * OF_2], error2[WINDOWS * OF_2];
    float matrix2[PADDED1 * OF_2], matrix3[PADDED2];
    float bias1[PADDED1], bias2[PADDED2], bias3;
    float error[WINDOWS];
};

struct Split {
    unsigned high, low; /* TF32: the tensor cores do not read the last 13 bits */
};

__device__ __forceinline__ Split split(float x) {
    /* Rounded; a NaN would become 0. */
    const unsigned rounded = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    const unsigned high = PRODUCTS == 1 && x != x ? 0x7fc00000u : rounded;
    return {high, __float_as_uint(x - __uint_as_float(high))};
}

__device__ __forceinline__ void multiply(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2,
                                         unsigned a3, unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* A lane's part of the left factor, rows g and g + 8 in columns t and t + 4. */
struct Left {
    Split at[4];
    __device__ __forceinline__ Left(float g_t, float g8_t, float g_t4, float g8_t4)
        : at{split(g_t), split(g8_t), split(g_t4), split(g8_t4)} {}
};

/* sums[n] += a b[n]; what the low parts add goes to `rests`. Of products that add to the same numbers
   each waits for the one before it, so those of all n take turns. */
template <int COUNT>
__device__ __forceinline__ void multiply(float (&sums)[COUNT][4], float (&rests)[COUNT][4],
                                         const Left &a, const float (&b)[COUNT][2]) {
    Split parts[COUNT][2];
    const Split *of = a.at;
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        parts[n][0] = split(b[n][0]);
        parts[n][1] = split(b[n][1]);
        multiply(sums[n], of[0].high, of[1].high, of[2].high, of[3].high, parts[n][0].high,
                 parts[n][1].high);
    }
    if (PRODUCTS == 1) return;
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        multiply(rests[n], of[0].high, of[1].high, of[2].high, of[3].high, parts[n][0].low,
                 parts[n][1].low);
#pragma unroll
    for (int n = 0; n < COUNT; n++)
        multiply(rests[n], of[0].low, of[1].low, of[2].low, of[3].low, parts[n][0].high,
                 parts[n][1].high);
}

struct Lane {
    int warp, g, t, tile, share; /* `tile`: 16 units of the first layer; `share`: of the inputs */
    __device__ Lane()
        : warp(threadIdx.x / 32), g(threadIdx.x % 32 / 4), t(threadIdx.x % 4), tile(warp % TILES1),
          share(warp / TILES1) {}
    /* Unit and input of number i of a warp's tile j of the first matrix. */
    __device__ __forceinline__ int unit(int i) const { return 16 * tile + g + 8 * (i / 2); }
    __device__ __forceinline__ int input(int j, int i) const {
        return 8 * (share * OWN + j) + 2 * t + i % 2;
    }
    __device__ __forceinline__ bool exists(int j, int i) const {
        return (UNITS1 == PADDED1 || unit(i) < UNITS1) &&
               (INPUTS == 8 * SHARES * OWN || input(j, i) < INPUTS);
    }
    __device__ __forceinline__ int place(int j, int i) const {
        return input(j, i) * UNITS1 + unit(i);
    }
    /* Where the scratch has the four numbers of a lane's tile. */
    __device__ __forceinline__ int own(int j) const {
        return (warp * OWN + j) * 128 + 4 * (threadIdx.x % 32);
    }
};

/* Copies of 4, 2 or 1 numbers into shared memory, which the threads do not wait for. */
constexpr int COPIED = FEATURES % 4 == 0 ? 4 : FEATURES % 2 == 0 ? 2 : 1;

__device__ __forceinline__ void copy(float *to, const float *from) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (COPIED == 4)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from),
                     "n"(4 * COPIED));
}

/* The windows of a batch, `starts` [BATCH] being where they begin: for all warps first the inputs of
   their first CHUNK tiles, and so on, so that products begin before all is there. */
__device__ __forceinline__ void load(Shared &own, const float *series, const long long *starts) {
    constexpr int COPIES = 8 * CHUNK / COPIED; /* of a window and share */
    for (int first = 0; first < OWN; first += CHUNK) {
        for (int i = threadIdx.x; i < BATCH * SHARES * COPIES; i += THREADS) {
            const int window = i / (SHARES * COPIES), share = i / COPIES % SHARES;
            const int input = 8 * (share * OWN + first) + i % COPIES * COPIED;
            if (input < INPUTS)
                copy(own.windows + window * OF_X + input,
                     series + starts[window] * FEATURES + input);
        }
        asm volatile("cp.async.commit_group;");
    }
}

/* Waits for all of `load` but the last `pending` chunks. */
__device__ __forceinline__ void await(int pending) {
    if (pending == 0) asm volatile("cp.async.wait_group 0;");
    else if (pending == 1) asm volatile("cp.async.wait_group 1;");
    else if (pending == 2) asm volatile("cp.async.wait_group 2;");
    else asm volatile("cp.async.wait_group 3;");
    __syncthreads();
}

/* Sums of the first layer: those of a warp's inputs for its 16 units, all windows. */
__device__ __forceinline__ void forward1(Shared &own, const Lane &lane, const float (&matrix)[OWN][4]) {
    constexpr int TURNS = BATCHES % 4 ? BATCHES % 2 ? 1 : 2 : 4;
    float sums[BATCHES / TURNS][TURNS][4] = {};
#pragma unroll
    for (int j = 0; j < OWN; j++) {
        if (j % CHUNK == 0) await(OWN / CHUNK - 1 - j / CHUNK);
        const float(&w)[4] = matrix[j];
        const Left left(w[0], w[2], w[1], w[3]); /* columns t and t + 4 stand for inputs 2t, 2t + 1 */
        const float *x = own.windows + lane.g * OF_X + lane.input(j, 0);
#pragma unroll
        for (int b = 0; b < BATCHES / TURNS; b++) {
            float two[TURNS][2];
#pragma unroll
            for (int n = 0; n < TURNS; n++) {
                const float2 read = *(const float2 *)(x + 8 * (TURNS * b + n) * OF_X);
                two[n][0] = read.x;
                two[n][1] = read.y;
            }
            multiply(sums[b], sums[b], left, two);
        }
    }
    float *part = own.hidden1 + lane.share * WINDOWS * OF_1 + 16 * lane.tile + lane.g;
#pragma unroll
    for (int b = 0; b < BATCHES; b++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            part[(8 * b + 2 * lane.t + i % 2) * OF_1 + 8 * (i / 2)] = sums[b / TURNS][b % TURNS][i];
}

/* hidden1 = max(0, sum of the parts + bias), in place of the first part. */
__device__ __forceinline__ void activate1(Shared &own) {
    for (int i = threadIdx.x; i < WINDOWS * PADDED1; i += THREADS) {
        const int unit = i % PADDED1, at = i / PADDED1 * OF_1 + unit;
        float sum = own.bias1[unit];
#pragma unroll
        for (int part = 0; part < SHARES; part++) sum += own.hidden1[part * WINDOWS * OF_1 + at];
        own.hidden1[at] = sum < 0.0f ? 0.0f : sum; /* NaN stays NaN */
    }
}

__device__ __forceinline__ void forward2(Shared &own, const Lane &lane) {
    for (int tile = lane.warp; tile < TILES2 * BATCHES; tile += WARPS) {
        const int m = tile % TILES2, b = tile / TILES2;
        float sum[1][4] = {}, rest[1][4] = {};
        const float *w = own.matrix2 + lane.t * OF_2 + 16 * m + lane.g;
        const float *x = own.hidden1 + (8 * b + lane.g) * OF_1 + lane.t;
#pragma unroll
        for (int k = 0; k < PADDED1; k += 8) {
            const float *here = w + k * OF_2, *next = here + 4 * OF_2;
            const float two[1][2] = {{x[k], x[k + 4]}};
            multiply(sum, rest, Left(here[0], here[8], next[0], next[8]), two);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int unit = 16 * m + lane.g + 8 * (i / 2), window = 8 * b + 2 * lane.t + i % 2;
            const float z = sum[0][i] + rest[0][i] + own.bias2[unit];
            own.hidden2[window * OF_2 + unit] = z < 0.0f ? 0.0f : z;
        }
    }
}

/* Predictions, their errors, and what goes back to the second layer. */
__device__ __forceinline__ void turn(Shared &own, const float *labels, const float *shares) {
    constexpr int EACH = THREADS / WINDOWS >= 4 ? 4 : 1; /* threads of a window */
    for (int i = threadIdx.x; i < WINDOWS * EACH; i += THREADS) {
        const int window = i / EACH;
        const float *x = own.hidden2 + window * OF_2;
        float sum = 0.0f;
        for (int unit = i % EACH; unit < PADDED2; unit += EACH) sum += x[unit] * own.matrix3[unit];
        for (int by = 1; by < EACH; by *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
        const bool there = window < BATCH;
        const float error =
            there ? loss_slope(sum + own.bias3, labels[window]) * shares[window] : 0.0f;
        if (i % EACH == 0) own.error[window] = error;
        for (int unit = i % EACH; unit < PADDED2; unit += EACH)
            own.error2[window * OF_2 + unit] = x[unit] <= 0.0f ? 0.0f : error * own.matrix3[unit];
    }
}

/* What goes back to the first layer, [window, unit], in the second part of hidden1. */
__device__ __forceinline__ void back1(Shared &own, const Lane &lane) {
    float *errors = own.hidden1 + WINDOWS * OF_1;
    for (int tile = lane.warp; tile < TILES1 * BATCHES; tile += WARPS) {
        const int m = tile % TILES1, b = tile / TILES1;
        float sum[1][4] = {}, rest[1][4] = {};
        const float *w = own.matrix2 + (16 * m + lane.g) * OF_2 + lane.t;
        const float *e = own.error2 + (8 * b + lane.g) * OF_2 + lane.t;
#pragma unroll
        for (int k = 0; k < PADDED2; k += 8) {
            const float two[1][2] = {{e[k], e[k + 4]}};
            multiply(sum, rest, Left(w[k], w[k + 8 * OF_2], w[k + 4], w[k + 4 + 8 * OF_2]), two);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int unit = 16 * m + lane.g + 8 * (i / 2), window = 8 * b + 2 * lane.t + i % 2;
            const int at = window * OF_1 + unit;
            errors[at] = own.hidden1[at] <= 0.0f ? 0.0f : sum[0][i] + rest[0][i];
        }
    }
}

constexpr int HELD2 = tiles(TILES2 * PADDED1 / 8, WARPS); /* tiles of the second gradient a warp has */

__device__ __forceinline__ void gradient2(const Shared &own, const Lane &lane, float (&found)[HELD2][4]) {
#pragma unroll
    for (int held = 0; held < HELD2; held++) {
        const int tile = lane.warp + held * WARPS, m = tile % TILES2, n = tile / TILES2;
        if (tile >= TILES2 * PADDED1 / 8) break;
        float sum[1][4] = {}, rest[1][4] = {};
        const float *e = own.error2 + lane.t * OF_2 + 16 * m + lane.g;
        const float *x = own.hidden1 + lane.t * OF_1 + 8 * n + lane.g;
#pragma unroll
        for (int k = 0; k < WINDOWS; k += 8) {
            const float *here = e + k * OF_2, *next = here + 4 * OF_2;
            const float two[1][2] = {{x[k * OF_1], x[(k + 4) * OF_1]}};
            multiply(sum, rest, Left(here[0], here[8], next[0], next[8]), two);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) found[held][i] = sum[0][i] + rest[0][i];
    }
}

/* Moves a weight that lies in shared memory, `place` being its number among all. */
__device__ __forceinline__ void take(float &weight, float gradient, int place, const Mover &mover) {
    const int at = MATRIX1 + place - BIAS1;
    const float before = weight;
    const Beside of = beside(mover.scratch, at);
    weight = mover.is_first ? mover.first(gradient, before, of) : mover.later(gradient, before, of);
    if (LOOKS_BACK) mover.scratch[at] = before;
}

__device__ __forceinline__ void move2(Shared &own, const Lane &lane, const float (&found)[HELD2][4],
                                      const Mover &mover) {
#pragma unroll
    for (int held = 0; held < HELD2; held++) {
        const int tile = lane.warp + held * WARPS, m = tile % TILES2, n = tile / TILES2;
        if (tile >= TILES2 * PADDED1 / 8) break;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int out = 16 * m + lane.g + 8 * (i / 2), in = 8 * n + 2 * lane.t + i % 2;
            if (out < UNITS2 && in < UNITS1)
                take(own.matrix2[in * OF_2 + out], found[held][i], MATRIX2 + in * UNITS2 + out, mover);
        }
    }
}

/* Biases and the output layer: a thread sums a column over the windows. */
__device__ __forceinline__ void move_rest(Shared &own, const Mover &mover) {
    constexpr int COUNT = UNITS1 + 2 * UNITS2 + 1;
    for (int i = threadIdx.x; i < COUNT; i += THREADS) {
        const int second = i - UNITS1, output = second - UNITS2;
        const float *errors = i < UNITS1 ? own.hidden1 + WINDOWS * OF_1 + i : own.error2 + second;
        float sum = 0.0f;
        if (output < 0) {
            const int step = i < UNITS1 ? OF_1 : OF_2;
            for (int window = 0; window < WINDOWS; window++) sum += errors[window * step];
        } else if (output < UNITS2) {
            for (int window = 0; window < WINDOWS; window++)
                sum += own.hidden2[window * OF_2 + output] * own.error[window];
        } else {
            for (int window = 0; window < WINDOWS; window++) sum += own.error[window];
        }
        if (i < UNITS1) take(own.bias1[i], sum, BIAS1 + i, mover);
        else if (output < 0) take(own.bias2[second], sum, BIAS2 + second, mover);
        else if (output < UNITS2) take(own.matrix3[output], sum, MATRIX3 + output, mover);
        else take(own.bias3, sum, BIAS3, mover);
    }
}

__device__ __forceinline__ void move1(const Shared &own, const Lane &lane, float (&matrix)[OWN][4],
                                      const Mover &mover) {
    const float *e = own.hidden1 + WINDOWS * OF_1 + lane.t * OF_1 + 16 * lane.tile + lane.g;
    const float *x = own.windows + lane.t * OF_X + 8 * lane.share * OWN + lane.g;
    Beside read[OWN][4]; /* asked for a group ahead, so that nobody waits for it */
#pragma unroll
    for (int j = 0; j < GROUP; j++) four_beside(read[j], mover.scratch, lane.own(j));
#pragma unroll
    for (int first = 0; first < OWN; first += GROUP) {
        float sums[GROUP][4] = {}, rests[GROUP][4] = {};
#pragma unroll
        for (int j = first + GROUP; j < first + 2 * GROUP && j < OWN; j++)
            four_beside(read[j], mover.scratch, lane.own(j));
#pragma unroll
        for (int k = 0; k < WINDOWS; k += 8) {
            const float *here = e + k * OF_1, *next = here + 4 * OF_1;
            const Left left(here[0], here[8], next[0], next[8]);
            float two[GROUP][2];
#pragma unroll
            for (int j = 0; j < GROUP; j++) {
                two[j][0] = x[k * OF_X + 8 * (first + j)];
                two[j][1] = x[(k + 4) * OF_X + 8 * (first + j)];
            }
            multiply(sums, rests, left, two);
        }
        const auto move = [&](const auto &rule) {
#pragma unroll
            for (int j = 0; j < GROUP; j++) {
                float(&own)[4] = matrix[first + j];
                if (LOOKS_BACK)
                    *(float4 *)(mover.scratch + lane.own(first + j)) =
                        make_float4(own[0], own[1], own[2], own[3]);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (lane.exists(first + j, i))
                        own[i] = rule(sums[j][i] + rests[j][i], own[i], read[first + j][i]);
            }
        };
        if (mover.is_first) move(mover.first);
        else move(mover.later);
    }
}

/* What a weight's step reads besides, in the order in which the lanes read it. */
__device__ void fill(float *scratch, const Lane &lane, const float *from) {
#pragma unroll
    for (int j = 0; j < OWN; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            scratch[lane.own(j) + i] = lane.exists(j, i) ? from[lane.place(j, i)] : 0.0f;
    for (int i = BIAS1 + threadIdx.x; i < WEIGHTS; i += THREADS) scratch[MATRIX1 + i - BIAS1] = from[i];
}

/* Zeros where there is padding, and the vehicle's first weights. */
__device__ void begin(Shared &own, const Lane &lane, float (&matrix)[OWN][4], const float *anchor) {
    float *all = (float *)&own;
    for (int i = threadIdx.x; i < (int)(sizeof(Shared) / sizeof(float)); i += THREADS) all[i] = 0.0f;
#pragma unroll
    for (int j = 0; j < OWN; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            matrix[j][i] = lane.exists(j, i) ? anchor[lane.place(j, i)] : 0.0f;
    __syncthreads();
    for (int i = threadIdx.x; i < UNITS1; i += THREADS) own.bias1[i] = anchor[BIAS1 + i];
    for (int i = threadIdx.x; i < UNITS1 * UNITS2; i += THREADS)
        own.matrix2[i / UNITS2 * OF_2 + i % UNITS2] = anchor[MATRIX2 + i];
    for (int i = threadIdx.x; i < UNITS2; i += THREADS) {
        own.bias2[i] = anchor[BIAS2 + i];
        own.matrix3[i] = anchor[MATRIX3 + i];
    }
    if (threadIdx.x == 0) own.bias3 = anchor[BIAS3];
    __syncthreads();
}

/* How far the weights have come. */
__device__ void end(const Shared &own, const Lane &lane, const float (&matrix)[OWN][4],
                    const float *anchor, float *moved) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < OWN; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (lane.exists(j, i)) {
                const int place = lane.place(j, i);
                moved[place] = matrix[j][i] - anchor[place];
            }
    for (int i = BIAS1 + threadIdx.x; i < WEIGHTS; i += THREADS) {
        const int second = i - MATRIX2;
        const float weight = i < MATRIX2   ? own.bias1[i - BIAS1]
                             : i < BIAS2   ? own.matrix2[second / UNITS2 * OF_2 + second % UNITS2]
                             : i < MATRIX3 ? own.bias2[i - BIAS2]
                             : i < BIAS3   ? own.matrix3[i - MATRIX3]
                                           : own.bias3;
        moved[i] = weight - anchor[i];
    }
}

/* All steps of a vehicle, one block for each. P vehicles; `starts`, `labels` and `shares` are
   [steps, P, BATCH], `steps` [P], `anchors`, tensors and `moved` [P, WEIGHTS], `numbers` [P, NUMBERS],
   `scratches` [P, COLUMNS, SCRATCH]. */
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    train_round(const float *series, const long long *starts, const float *labels,
                const float *shares, const long long *steps, long long vehicles,
                const float *anchors, const double *numbers, float *scratches,
                float *moved TENSOR_PARAMETERS) {
    extern __shared__ __align__(16) unsigned char memory[];
    Shared &own = *(Shared *)memory;
    const Lane lane;
    const long long row = blockIdx.x, begins = row * WEIGHTS;
    const float *anchor = anchors + begins;
    Mover mover{scratches + row * COLUMNS * SCRATCH, First(numbers + row * NUMBERS),
                Later(numbers + row * NUMBERS), true};
    const float *const sources[] = {SOURCES};
#pragma unroll
    for (int column = 0; column < COLUMNS; column++)
        fill(mover.scratch + column * SCRATCH, lane, sources[column]);
    float matrix[OWN][4];
    begin(own, lane, matrix, anchor);
    const int count = (int)steps[row];
    for (int step = 0; step < count; step++) {
        const long long batch = (step * vehicles + row) * BATCH;
        load(own, series, starts + batch);
        forward1(own, lane, matrix);
        __syncthreads();
        activate1(own);
        __syncthreads();
        forward2(own, lane);
        __syncthreads();
        turn(own, labels + batch, shares + batch);
        __syncthreads();
        float found[HELD2][4];
        back1(own, lane);
        gradient2(own, lane, found);
        __syncthreads();
        mover.is_first = step == 0;
        move2(own, lane, found, mover);
        move_rest(own, mover);
        move1(own, lane, matrix, mover);
        __syncthreads();
    }
    end(own, lane, matrix, anchor, moved + begins);
}
