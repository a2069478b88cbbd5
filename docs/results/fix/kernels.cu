// Fifty kernels of several kinds, as PTX for fix_code.py: each reads and writes `n` floats at p.
template <int N> __device__ float chain(float x) {
    for (int i = 0; i < N; i++) x = fmaf(x, 1.0009765625f, __int_as_float(0x3f000000 + i));
    return x;
}
#define AT blockIdx.x * blockDim.x + threadIdx.x
// Arithmetic, unrolled or not.
template <int N> __global__ void arithmetic(float *p, int n) { int i = AT; if (i < n) p[i] = chain<N>(p[i]); }
// An array that does not fit into registers.
template <int N> __global__ void spill(float *p, int n) {
    float a[N];
    for (int i = 0; i < N; i++) a[i] = p[AT % n] * (i + 1);
    for (int r = 0; r < 3; r++) for (int i = 0; i < N; i++) a[i] = fmaf(a[(i * 13 + r) % N], 0.5f, a[(i + 1) % N]);
    float sum = 0;
    for (int i = 0; i < N; i++) sum += a[i];
    if (AT < n) p[AT] = sum;
}
// Shared memory and barriers.
template <int N> __global__ void shared(float *p, int n) {
    __shared__ float tile[8][33 + N];
    int x = threadIdx.x % 32, y = threadIdx.x / 32;
    tile[y][x] = p[AT % n];
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < N; i++) sum += tile[i % 8][(x + i) % 32];
    __syncthreads();
    if (AT < n) p[AT] = sum;
}
// Square roots, sines and divisions.
template <int N> __global__ void functions(float *p, int n) {
    int i = AT;
    if (i >= n) return;
    float x = p[i];
    for (int k = 0; k < N; k++) x = sinf(x) / (1.5f + sqrtf(fabsf(x))) + expf(-x * x);
    p[i] = x;
}
// Doubles, and a loop whose end is data.
template <int N> __global__ void doubles(float *p, int n) {
    int i = AT;
    if (i >= n) return;
    double x = p[i];
    for (int k = 0; k < N + (i & 7); k++) x = x * 0.999 + 1.0 / (k + 1 + x * x);
    p[i] = (float)x;
}
#define FIVE(KIND, A, B, C, D, E) \
    template __global__ void KIND<A>(float *, int); template __global__ void KIND<B>(float *, int); template __global__ void KIND<C>(float *, int); \
    template __global__ void KIND<D>(float *, int); template __global__ void KIND<E>(float *, int);
FIVE(arithmetic, 1, 2, 3, 4, 8) FIVE(arithmetic, 16, 32, 64, 128, 1000) FIVE(spill, 8, 16, 24, 32, 48) FIVE(spill, 64, 96, 128, 192, 256)
FIVE(shared, 1, 2, 3, 4, 5) FIVE(shared, 6, 8, 10, 16, 32) FIVE(functions, 1, 2, 3, 4, 5) FIVE(functions, 6, 8, 10, 16, 40)
FIVE(doubles, 1, 2, 3, 4, 5) FIVE(doubles, 6, 8, 16, 64, 200)
