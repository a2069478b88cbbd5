"""A camera's frames go to the GPU through a ring of four: the camera fills the next while the copy of the one before is under way.

    python3 frames.py [frames, 200]
"""

import sys

import doorbell

FRAMES, BYTES = 4, 64 * 1024


def main(wanted):
    overruns = 0
    with doorbell.session():
        camera, gpu = doorbell.allocate(FRAMES * BYTES), doorbell.allocate(FRAMES * BYTES, "gpu")
        seen = doorbell.allocate(BYTES)
        ring = doorbell.ring(gpu, camera, BYTES, FRAMES)
        for n in range(wanted):
            while True:
                try:
                    frame = ring.next()
                    break
                except doorbell.Overrun:
                    overruns += 1  # A real camera would drop this frame.
            frame.view[:] = bytes([n % 251]) * BYTES
            ticket = ring.submit()
            if n % 20 == 19:
                ticket.wait()
                doorbell.copy_(seen, gpu, BYTES, src_offset=frame.offset)
                if seen.view != frame.view:
                    sys.exit(f"frame {n} is another on the GPU")
        ticket.wait()
    print(f"{wanted} frames, the camera had to wait {'at times' if overruns else 'never'}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
