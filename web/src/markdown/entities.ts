/**
 * Decodes named characters such as &auml; with a small table, and others once the table of all 2,200 names is loaded. The
 * build puts this module in place of the package "entities" that markdown-it imports.
 */

/** The characters U+00A0 to U+00FF. */
const latin =
  "nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 acute micro " +
  "para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil " +
  "Egrave Eacute Ecirc Euml Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave " +
  "Uacute Ucirc Uuml Yacute THORN szlig agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml " +
  "igrave iacute icirc iuml eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute " +
  "thorn yuml";

/** The other names of HTML 4, each with its character. */
const others =
  "quot\" amp& apos' lt< gt> OEligŒ oeligœ ScaronŠ scaronš YumlŸ fnofƒ circˆ tilde˜ AlphaΑ BetaΒ GammaΓ DeltaΔ EpsilonΕ " +
  "ZetaΖ EtaΗ ThetaΘ IotaΙ KappaΚ LambdaΛ MuΜ NuΝ XiΞ OmicronΟ PiΠ RhoΡ SigmaΣ TauΤ UpsilonΥ PhiΦ ChiΧ PsiΨ OmegaΩ alphaα " +
  "betaβ gammaγ deltaδ epsilonε zetaζ etaη thetaθ iotaι kappaκ lambdaλ muμ nuν xiξ omicronο piπ rhoρ sigmafς sigmaσ tauτ " +
  "upsilonυ phiφ chiχ psiψ omegaω thetasymϑ upsihϒ pivϖ ensp\u2002 emsp\u2003 thinsp\u2009 zwnj\u200c zwj\u200d lrm\u200e rlm\u200f ndash– mdash— lsquo‘ " +
  "rsquo’ sbquo‚ ldquo“ rdquo” bdquo„ dagger† Dagger‡ bull• hellip… permil‰ prime′ Prime″ lsaquo‹ rsaquo› oline‾ frasl⁄ " +
  "euro€ imageℑ weierp℘ realℜ trade™ alefsymℵ larr← uarr↑ rarr→ darr↓ harr↔ crarr↵ lArr⇐ uArr⇑ rArr⇒ dArr⇓ hArr⇔ forall∀ " +
  "part∂ exist∃ empty∅ nabla∇ isin∈ notin∉ ni∋ prod∏ sum∑ minus− lowast∗ radic√ prop∝ infin∞ ang∠ and∧ or∨ cap∩ cup∪ int∫ " +
  "there4∴ sim∼ cong≅ asymp≈ ne≠ equiv≡ le≤ ge≥ sub⊂ sup⊃ nsub⊄ sube⊆ supe⊇ oplus⊕ otimes⊗ perp⊥ sdot⋅ lceil⌈ rceil⌉ " +
  "lfloor⌊ rfloor⌋ lang⟨ rang⟩ loz◊ spades♠ clubs♣ hearts♥ diams♦";

const common = new Map<string, string>();
latin.split(" ").forEach((name, i) => common.set(name, String.fromCharCode(0xa0 + i)));
for (const [, name, character] of others.matchAll(/([a-z\d]+)([^a-z\d])( |$)/gi)) common.set(name!, character!);

type Decode = (reference: string) => string;

let all: Decode | undefined;
let loading: Promise<boolean> | undefined;
let missed = 0;

/** missedNames returns how many references were not decoded so far because the table of all names was not loaded. */
export const missedNames = (): number => missed;

/** loadNames loads the table of all names. The result is false if that failed; a later call tries again. */
export function loadNames(): Promise<boolean> {
  loading ??= import("entities/decode").then(
    ({ decodeHTMLStrict }) => ((all = decodeHTMLStrict), true),
    () => ((loading = undefined), false),
  );
  return loading;
}

/** decodeHTMLStrict returns the characters of one reference, such as "&auml;", or the reference if its name is not known (yet). */
export function decodeHTMLStrict(reference: string): string {
  const found = common.get(reference.slice(1, -1)) ?? all?.(reference);
  if (found === undefined) missed++;
  return found ?? reference;
}
