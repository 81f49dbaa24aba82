// Links that contain a snippet: in the fragment, which browsers do not send to a server.
import lz from 'lz-string';

const { compressToEncodedURIComponent, decompressFromEncodedURIComponent } = lz;

/** The largest snippet in a link, in bytes. */
export const MAX_BYTES = 8000;

/** The file that is run. */
export const ENTRY = 'src/main.ts';

/**
 * The files and the title in a fragment; null if there are none. Every field is checked: the author of
 * a link may be anyone.
 */
export function read(fragment) {
  const fields = new URLSearchParams(fragment.replace(/^#/, '').replaceAll('+', '%2B'));
  const title = (fields.get('t') ?? '').slice(0, 200);
  const source = unpack(fields.get('src'));
  if (source) return { title, files: [{ path: ENTRY, source }] };
  const packed = unpack(fields.get('files'));
  if (!packed) return null;
  let files;
  try {
    files = JSON.parse(packed);
  } catch {
    return null;
  }
  const isFile = (file) =>
    typeof file === 'object' &&
    file !== null &&
    typeof file.path === 'string' &&
    typeof file.source === 'string' &&
    /^[\w./-]{1,120}$/.test(file.path);
  if (!Array.isArray(files) || files.length === 0 || files.length > 10) return null;
  if (!files.every(isFile)) return null;
  return { title, files: files.map(({ path, source }) => ({ path, source })) };
}

function unpack(text) {
  if (!text) return null;
  const unpacked = decompressFromEncodedURIComponent(text);
  return typeof unpacked === 'string' && unpacked.length <= 200_000 ? unpacked : null;
}

/** The fragment of a snippet; null if it is too large for a link. */
export function write(files, title) {
  const bytes = files.reduce((sum, { source }) => sum + new TextEncoder().encode(source).length, 0);
  if (bytes > MAX_BYTES) return null;
  const isOne = files.length === 1 && files[0].path === ENTRY;
  const field = isOne
    ? `src=${compressToEncodedURIComponent(files[0].source)}`
    : `files=${compressToEncodedURIComponent(JSON.stringify(files))}`;
  return title ? `#${field}&t=${encodeURIComponent(title)}` : `#${field}`;
}
