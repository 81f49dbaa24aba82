// Waits, and limits of them.

export class LateError extends Error {}

// The result of some work, or an error after a time in milliseconds.
export const within = async (work, limit, message) => {
  let timer;
  const late = new Promise((resolve, reject) => {
    timer = setTimeout(() => reject(new LateError(message)), limit);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
};

// Waits for a time in milliseconds, or until a signal is aborted.
export const pause = (delay, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, delay);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
