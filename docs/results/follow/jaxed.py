"""A jitted function of JAX's; the last line is a hash of its result."""
import hashlib

import jax
import jax.numpy as jnp
import numpy as np

f = jax.jit(lambda a: jnp.sin(a) * 2 + a @ a.T)
x = jnp.asarray(np.random.default_rng(1).standard_normal((256, 256), dtype=np.float32))
for _ in range(20):
    x = f(x) / 300
print("result", hashlib.sha256(np.asarray(x).tobytes()).hexdigest()[:24])
