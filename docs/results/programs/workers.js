// Worker threads, shared memory with Atomics.wait, the thread pool of libuv, zlib and crypto.
const { Worker, isMainThread, workerData, parentPort } = require('worker_threads');
const crypto = require('crypto');
const zlib = require('zlib');
const fs = require('fs');
if (isMainThread) {
  const shared = new SharedArrayBuffer(8);
  const cells = new Int32Array(shared);
  let left = 8, hash = crypto.createHash('sha256');
  const said = [];
  for (let i = 0; i < 8; i++) {
    new Worker(__filename, { workerData: { shared, i } })
      .on('message', m => { said[i] = m; })
      .on('exit', () => {
        if (--left) return;
        let files = 40;
        const names = [];
        for (let k = 0; k < 40; k++)
          fs.readFile(__filename, (e, b) => {
            if (e) throw e;
            names[k] = b.length === fs.statSync(__filename).size;
            if (--files) return;
            hash.update(said.join());
            console.log(cells[0], hash.digest('hex').slice(0, 16), names.every(x => x));
          });
      });
  }
} else {
  const cells = new Int32Array(workerData.shared);
  for (let k = 0; k < 1000; k++) Atomics.add(cells, 0, 1);
  Atomics.notify(cells, 1);
  Atomics.wait(cells, 1, 0, 5);
  const packed = zlib.deflateSync(Buffer.alloc(200000, workerData.i));
  const key = crypto.pbkdf2Sync('x', String(workerData.i), 2000, 32, 'sha256').toString('hex');
  parentPort.postMessage(key + packed.length);
}
