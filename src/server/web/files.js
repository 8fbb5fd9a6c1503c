// Files attached to a question: texts {name, text}, and images {name, image}. A request appends each text to the
// question as a separate block.
import {make} from '/dom.js';
import {imageNode, isImage, isPicture, readImage} from '/images.js';

const MAX_BYTES = 1 << 20;

// Checks the form of a list of files, because imported conversations may contain anything.
const isFile = file => typeof file?.name === 'string' && (typeof file.text === 'string' || isImage(file));
export const areFiles = files => Array.isArray(files) && files.every(isFile);

// Files of other kinds by their first bytes: what they are, and what to do instead.
const OTHERS = [
  ['%PDF-', 'is a PDF, and this page reads only text. Convert it first, for example with `pdftotext FILE.pdf`, and attach the text.'],
  ['PK\x03\x04', 'is an archive or an office document, and this page reads only text. Save it as plain text, and attach the text.'],
];

async function checkKind(file) {
  const begin = String.fromCharCode(...new Uint8Array(await file.slice(0, 8).arrayBuffer()));
  const other = OTHERS.find(([mark]) => begin.startsWith(mark));
  if (other) throw new Error(`${file.name} ${other[1].replace('FILE.pdf', file.name)}`);
}

// Reads the files of an <input>, a drop or a clipboard. model: its entry of /v1/models, or undefined. Throws Error with
// a message for people.
export async function readFiles(list, model) {
  const found = [];
  for (const file of list) {
    if (await isPicture(file)) {
      if (!model?.architecture?.input_modalities?.includes('image')) throw new Error(`${file.name} is a picture, and the model reads only text.`);
      found.push(await readImage(file, model.images));
      continue;
    }
    await checkKind(file);
    if (file.size > MAX_BYTES) throw new Error(`${file.name} is larger than 1 MiB. Attach only the part you need.`);
    try {
      const text = new TextDecoder('utf-8', {fatal: true}).decode(await file.arrayBuffer());
      if (text.includes('\0')) throw new TypeError();
      found.push({name: file.name, text});
    } catch {
      throw new Error(`${file.name} is not a text file in UTF-8.`);
    }
  }
  return found;
}

// The text for the model.
export function withFiles(content, files = []) {
  const block = ({name, text}) => {
    const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(m => m[0].length));
    const fence = '`'.repeat(longest + 1);
    return `${name}:\n${fence}\n${text.replace(/\n$/, '')}\n${fence}`;
  };
  return [content, ...files.filter(file => !isImage(file)).map(block)].filter(Boolean).join('\n\n');
}

// Shows a file: an image, or a text's name, and the text on demand.
export const fileNode = file => isImage(file) ? imageNode(file) : textNode(file);
const textNode = ({name, text}) => make('details', {class: 'file'}, make('summary', {}, name), make('pre', {tabindex: '0'}, text));
