"""Parameters for a kernel that runs: 56 bytes travel in the command stream, then a number that says that they are there.

    python3 parameters.py [updates, 1000]
"""

import struct
import sys

import doorbell


def main(updates):
    with doorbell.session():
        # In host memory, so that this program can play the kernel. For a real kernel: pin() of its parameter block.
        block = doorbell.allocate(64)
        values, number = doorbell.prepare_bytes(block, 56), doorbell.prepare_bytes(block, 4, dst_offset=56)
        for n in range(1, updates + 1):
            now = struct.pack("14f", *(n + i / 16 for i in range(14)))
            values.submit(now)
            number.submit(struct.pack("I", n)).wait()
            if bytes(block.view[:60]) != now + struct.pack("I", n):
                sys.exit(f"update {n} is not there")
    print(f"{updates} updates of 56 bytes")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
