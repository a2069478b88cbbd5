/* cudaMemcpyBatchAsync: 20 batches of 64 pieces, 4 B to 129 KiB.
   record: --gpu-times
   last: --gpu-times
   expect: calls('cuMemcpyBatchAsync') == (20, 1280, sum(4 + i * 2048 + i % 3 for i in range(64)) * 20)
   expect: sum(c['bytes'] for c in copies if c['call'] and 'Batch' in c['call']['name']) == sum(4 + i * 2048 + i % 3 for i in range(64)) * 20 */
#include "gpu.h"
#include <vector>

int main()
{
    const int pieces = 64, batches = 20;
    unsigned char *h, *d, *b;
    size_t room = 16 << 20, at = 0, wrong = 0, first = 0;
    cudaStream_t s;
    OK(cudaMallocHost(&h, room));
    OK(cudaMallocHost(&b, room));
    OK(cudaMalloc(&d, room));
    OK(cudaStreamCreate(&s));
    for (size_t i = 0; i < room; i++)
        h[i] = (i * 2654435761u) >> 24;
    std::vector<void *> to(pieces);
    std::vector<const void *> from(pieces);
    std::vector<size_t> n(pieces);
    for (int i = 0; i < pieces; i++) {
        n[i] = 4 + (size_t)i * 2048 + i % 3, from[i] = h + at, to[i] = d + at;
        at += (n[i] + 255) / 256 * 256;
    }
    cudaMemcpyAttributes a = {};
    a.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    for (int k = 0; k < batches; k++) {
#if CUDART_VERSION >= 13000
        OK(cudaMemcpyBatchAsync(to.data(), from.data(), n.data(), pieces, &a, &first, 1, s));
#else
        size_t failed;
        OK(cudaMemcpyBatchAsync(to.data(), (void **)from.data(), n.data(), pieces, &a, &first, 1, &failed, s));
#endif
        OK(cudaStreamSynchronize(s));
    }
    OK(cudaMemcpy(b, d, room, cudaMemcpyDeviceToHost));
    for (int i = 0; i < pieces; i++)
        for (size_t j = 0, o = (unsigned char *)to[i] - d; j < n[i]; j++)
            wrong += b[o + j] != h[o + j];
    printf("pieces %d, wrong %zu\n", pieces * batches, wrong);
    return wrong != 0;
}
