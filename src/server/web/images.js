// Images attached to a question: {name, image}, with the image as a data URL. A large image is scaled down here, so that
// the conversation stays small, and the server's limits are kept.
import {make} from '/dom.js';

const MAX_SIDE = 2048, MAX_BYTES = 4 << 20;  // towers read no more than this
const QUALITY = 0.9;
// The formats that every server reads, by their first bytes. Other ones become one of these.
const KINDS = [['\x89PNG', 'image/png'], ['\xff\xd8\xff', 'image/jpeg'], ['GIF8', 'image/gif'], ['RIFF', 'image/webp']];
const DATA = /^data:image\/(png|jpeg|gif|webp);base64,/;

export const isImage = file => DATA.test(file?.image ?? '');

const beginOf = async file => String.fromCharCode(...new Uint8Array(await file.slice(0, 12).arrayBuffer()));
const kindOf = begin => KINDS.find(([mark]) => begin.startsWith(mark))?.[1];

// By the content, because a name may lie.
export async function isPicture(file) {
  const begin = await beginOf(file);
  return kindOf(begin) !== undefined || (begin.slice(4, 8) === 'ftyp' && /avif|heic|heix|mif1/.test(begin.slice(8)));
}

const dataUrl = blob => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(blob);
});

// Draws the picture smaller, on white: JPEG has no transparency.
function scaled(bitmap, factor) {
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, Math.floor(bitmap.width * factor));
  canvas.height = Math.max(1, Math.floor(bitmap.height * factor));
  const context = canvas.getContext('2d');
  context.fillStyle = 'white';
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = 'high';
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return new Promise(resolve => canvas.toBlob(resolve, 'image/jpeg', QUALITY));
}

// limits: {max_bytes, max_pixels} of the model, or undefined. Throws Error with a message for people.
export async function readImage(file, limits) {
  const maxBytes = Math.min(MAX_BYTES, limits?.max_bytes ?? MAX_BYTES), maxPixels = Math.min(MAX_SIDE ** 2, limits?.max_pixels ?? Infinity);
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name} is no picture that this browser can read. Save it as JPEG or PNG.`);
  }
  try {
    const {width, height} = bitmap, kind = kindOf(await beginOf(file));
    const factor = Math.min(1, MAX_SIDE / Math.max(width, height), Math.sqrt(maxPixels / (width * height)));
    if (kind && factor === 1 && file.size <= maxBytes) return {name: file.name, image: await dataUrl(file.slice(0, file.size, kind))};
    // A picture of noise may need several steps.
    for (let smaller = factor; smaller > 0.01; smaller *= 0.7) {
      const blob = await scaled(bitmap, smaller);
      if (blob.size <= maxBytes) return {name: file.name, image: await dataUrl(blob)};
    }
    throw new Error(`${file.name} is too large for this server. Attach a part of it.`);
  } finally {
    bitmap.close();
  }
}

// A message's content for the server.
export function withImages(text, files = []) {
  const images = files.filter(isImage).map(({image}) => ({type: 'image_url', image_url: {url: image}}));
  return images.length ? [...images, ...(text ? [{type: 'text', text}] : [])] : text;
}

// Shows an image, small until it is clicked.
export function imageNode({name, image}) {
  const node = make('button', {type: 'button', class: 'picture', 'aria-label': `${name}: show it larger`, 'aria-expanded': 'false', onclick: () => {
    const large = node.classList.toggle('large');
    node.setAttribute('aria-expanded', large);
  }}, make('img', {src: image, alt: name}));
  return node;
}
