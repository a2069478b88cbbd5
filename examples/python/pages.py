"""Pages of a KV cache, scattered over the GPU's memory, go to the host in one submission, and come back elsewhere in another.

    python3 pages.py [pages, 256]
"""

import os
import sys

import doorbell

PAGE = 4096


def main(count):
    with doorbell.session():
        cache, swap = doorbell.allocate(2 * count * PAGE, "gpu"), doorbell.allocate(count * PAGE)
        image = doorbell.allocate(2 * count * PAGE)
        image.view[:] = os.urandom(2 * count * PAGE)
        doorbell.copy_(cache, image)
        old = [2 * (count - 1 - n) for n in range(count)]
        doorbell.copy_pages(swap, range(count), cache, old, nbytes=PAGE).wait()
        for n in range(count):
            if swap.view[n * PAGE:(n + 1) * PAGE] != image.view[old[n] * PAGE:(old[n] + 1) * PAGE]:
                sys.exit(f"page {n} is another")
        doorbell.copy_pages(cache, [n + 1 for n in old], swap, range(count), nbytes=PAGE).wait()
        doorbell.copy_(image, cache)
        for n in range(0, 2 * count, 2):
            if image.view[n * PAGE:(n + 1) * PAGE] != image.view[(n + 1) * PAGE:(n + 2) * PAGE]:
                sys.exit(f"pages {n} and {n + 1} differ")
    print(f"{count} pages of {PAGE} bytes out and in, two submissions")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 256)
